import type { ReactNode } from "react";

export const metadata = { title: "A model in a page" };

export default function Layout({ children }: { children: ReactNode }) {
  return (
    <html lang="en">
      <body>{children}</body>
    </html>
  );
}
