// RUN: covan-opt %s -p 'func.func(kir-lower)' --mlir-print-debuginfo | FileCheck %s
// RUN: covan-opt %s -p 'func.func(kir-lower,kir-raise)' | FileCheck %s --check-prefix=AGAIN

// What it computes stays, and what it is, which can be read off that again.

// CHECK: "fred.chain"(%{{.+}}, %{{.+}}) ({
// CHECK-NOT: accumulator
// CHECK: (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32> loc(#[[LOC:.+]])
// CHECK: #[[LOC]] = loc(fused<#prov.trace<[4]>>
// AGAIN: "kir.linear"
// AGAIN: first = {at = ["i", "k"], name = "a", signed = true, zero = 0 : i64}
func.func @product(%x: tensor<5x8xi8>, %w: tensor<8x16xi8>) -> tensor<5x16xi32> {
  %y = "kir.linear"(%x, %w) ({
  ^bb0(%a: tensor<5x8xi8>, %b: tensor<8x16xi8>):
    %s = "fred.reduce"() ({
      %1 = "fred.read"(%a) : (tensor<5x8xi8>) -> i8
      %2 = arith.extsi %1 : i8 to i32
      %3 = "fred.read"(%b) : (tensor<8x16xi8>) -> i8
      %4 = arith.extsi %3 : i8 to i32
      %5 = arith.muli %2, %4 : i32
      "fred.yield"(%5) : (i32) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0 : i32, over = ["k"], value = "s"} : () -> tensor<5x16xi32>
    "fred.output"(%s) : (tensor<5x16xi32>) -> ()
  }, {}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["a", "b"], inputs = [["i", "k"], ["k", "j"]],
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "i32", scales = [], results = [{}],
    first = {name = "a", signed = true, zero = 0, at = ["i", "k"]}, second = {name = "b", signed = true, zero = 0, at = ["k", "j"]}} : (tensor<5x8xi8>, tensor<8x16xi8>) -> tensor<5x16xi32> loc("prov:4:mm")
  return %y : tensor<5x16xi32>
}
