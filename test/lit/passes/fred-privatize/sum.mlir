// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update,fred-privatize)' | FileCheck %s
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update,fred-split-k)' | FileCheck %s --check-prefix=OTHER

// Partial sums of disjoint parts are added.

// CHECK: "fred.rolling"
// CHECK: ^bb0(%[[A:[a-z0-9]+]]: tensor<5xf32>, %[[B:[a-z0-9]+]]: tensor<5xf32>):
// CHECK: %[[NEW:[0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[X:[0-9]+]] = "fred.read"(%[[A]])
// CHECK-NEXT: %[[Y:[0-9]+]] = "fred.read"(%[[B]])
// CHECK-NEXT: arith.addf %[[X]], %[[Y]]
// CHECK: value = "l.new"}
// CHECK-NEXT: "fred.next"(%[[NEW]])
// CHECK-NEXT: }) {axes = ["j"], initials = [0.000000e+00 : f32]

// Without a repair there is nothing for the other pass to do.

// OTHER: value = "l.new"}
// OTHER: value = "l"}
// OTHER-NEXT: "fred.next"
// OTHER-NEXT: }, {
// OTHER-NEXT: }) {axes = ["j"], initials
func.func @f(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %l = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "l", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%l) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
