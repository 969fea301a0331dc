import { Chat } from "./chat";

export default function Page() {
  return (
    <main>
      <h1>A model in a page</h1>
      <Chat address="/model.pte" />
    </main>
  );
}
