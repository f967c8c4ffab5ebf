// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update)' | FileCheck %s
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update{repairs=false})' | FileCheck %s --check-prefix=OFF
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update{rows=false})' | FileCheck %s --check-prefix=ROWS

// A function without a law follows nothing: the sum waits for the maximum, in a sweep of its own.

// CHECK: "fred.sweep"() {axes = ["j"], why = ""}
// CHECK: "fred.rolling"
// CHECK: "fred.sweep"() {axes = ["j"], why = "l cannot follow m: no law says how sin follows in sin(x - m)"}
// CHECK: "fred.rolling"
// CHECK-NOT: "fred.repair"
// CHECK: refusals = [{reason = "no law says how sin follows in sin(x - m)", statistics = ["m"], target = "l"}]

// OFF: why = "l cannot follow m: repairs are turned off"

// Rows that stay in cache are left as they are where that was asked for.

// ROWS: "fred.chain"
// ROWS-NOT: "fred.rolling"
func.func @f(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<5xf32>
    %l = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      %n = "fred.read"(%m) : (tensor<5xf32>) -> f32
      %s = arith.subf %e, %n : f32
      %p = math.sin %s : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "l", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%l) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
