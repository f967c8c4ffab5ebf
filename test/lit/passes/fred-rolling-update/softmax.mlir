// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update)' | FileCheck %s
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update)' | covan-opt -p 'func.func(fred-lower)' | FileCheck %s --check-prefix=LOWER

// The sum of exponentials runs in the loop of the maximum: what it has so far is repaired when the maximum grows.

// CHECK-LABEL: func.func @f(
// CHECK: "fred.fused"(%arg0) ({

// The chain that is computed.
// CHECK: over = ["j"], value = "m"}
// CHECK: over = ["j"], value = "l"}
// CHECK: "fred.output"

// CHECK: "fred.sweep"() {axes = ["j"], why = ""}
// CHECK: "fred.rolling"() ({
// CHECK-NEXT: ^bb0(%[[M_OLD:[a-z0-9]+]]: tensor<5xf32>, %[[L_OLD:[a-z0-9]+]]: tensor<5xf32>):
// CHECK: %[[M_LOCAL:[0-9]+]] = "fred.reduce"()
// CHECK: value = "m.local"}
// CHECK: %[[M_NEW:[0-9]+]] = "fred.map"() ({
// CHECK: "fred.read"(%[[M_OLD]])
// CHECK: "fred.read"(%[[M_LOCAL]])
// CHECK: arith.maximumf
// CHECK: value = "m.new"}
// CHECK: %[[M_SAFE:[0-9]+]] = "fred.map"() ({
// CHECK: guard = "x = [-inf, -inf, 0.0]: l would be nan, the chain has 1", value = "m.safe"}
// CHECK: %[[M_FROM:[0-9]+]] = "fred.map"() ({
// CHECK: value = "m.from_old"}
// CHECK: %[[L_LOCAL:[0-9]+]] = "fred.reduce"() ({
// CHECK: "fred.read"(%[[M_SAFE]])
// CHECK: value = "l.local"}

// l.old * exp(m.old - m.new)
// CHECK: "fred.repair"() ({
// CHECK-NEXT: %[[L:[0-9]+]] = "fred.read"(%[[L_OLD]])
// CHECK-NEXT: %[[OLD:[0-9]+]] = "fred.read"(%[[M_OLD]])
// CHECK-NEXT: %[[NEW:[0-9]+]] = "fred.read"(%[[M_NEW]])
// CHECK-NEXT: %[[D:[0-9]+]] = arith.subf %[[OLD]], %[[NEW]]
// CHECK-NEXT: %[[E:[0-9]+]] = math.exp %[[D]]
// CHECK-NEXT: %[[R:[0-9]+]] = arith.mulf %[[L]], %[[E]]
// CHECK-NEXT: "fred.yield"(%[[R]])
// CHECK-NEXT: }) {helpers = [], kind = "multiplicative", statistics = ["m"], value = "l"}
// CHECK: %[[L_NEW:[0-9]+]] = "fred.map"() ({
// CHECK: "fred.read"(%[[M_FROM]])
// CHECK: "fred.read"(%[[L_LOCAL]])
// CHECK: value = "l.new"}
// CHECK-NEXT: "fred.next"(%[[M_NEW]])
// CHECK-NEXT: "fred.next"(%[[L_NEW]])

// The end, and no merge yet.
// CHECK-NEXT: }, {
// CHECK: value = "m"}
// CHECK: value = "l"}
// CHECK: }, {
// CHECK-NEXT: }) {axes = ["j"], initials = [0xFF800000 : f32, 0.000000e+00 : f32]
// CHECK-SAME: state_axes = {{\[\[}}"i"], ["i"{{\]\]}}, states = ["m", "l"]}
// CHECK: refusals = []
// CHECK-SAME: rewrites = []

// LOWER-NOT: fred.
// LOWER: arith.maximumf
// LOWER: math.exp
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
      %p = math.exp %s : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "l", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%l) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
