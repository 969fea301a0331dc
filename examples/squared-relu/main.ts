// main.ts: exports a program that calls the operator, loads it again and runs it
import { exportMethods, loadMethods, type MethodSource } from "lowbit";
import { Ops } from "lowbit/extension";
import { registerSquaredRelu } from "./operator.ts";

registerSquaredRelu("squared-relu.so");

const forward: MethodSource = {
  name: "forward",
  inputs: [{ name: "x", spec: { dtype: "f32", shape: [1, 8] }, smallest: [1, 1] }],
  build: (builder, [x]) => [new Ops(builder).call("example::squared_relu.out", x!)],
};
await exportMethods([forward], "squared.pte");

const program = await loadMethods("squared.pte");
const data = Float32Array.of(-1, 2, 3);
const [y] = await program.createSession().run("forward", [{ dtype: "f32", shape: [1, 3], data }]);
console.log(y!.data, [...program.activeKernels.get("example::squared_relu.out")!]);
await program.dispose();
