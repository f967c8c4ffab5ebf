// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update,fred-split-k)' | FileCheck %s
// RUN: %segments %s | covan-opt -p 'func.func(fred-rolling-update,fred-privatize)' | FileCheck %s --check-prefix=OTHER

// Two states of disjoint parts become that of both: each sum is repaired to the larger maximum.

// CHECK: "fred.rolling"
// CHECK: ^bb0(%[[M_A:[a-z0-9]+]]: tensor<5xf32>, %[[L_A:[a-z0-9]+]]: tensor<5xf32>, %[[M_B:[a-z0-9]+]]: tensor<5xf32>, %[[L_B:[a-z0-9]+]]: tensor<5xf32>):
// CHECK: "fred.read"(%[[M_A]])
// CHECK: "fred.read"(%[[M_B]])
// CHECK: arith.maximumf
// CHECK: value = "m.new"}
// CHECK: value = "m.from_a"}
// CHECK: value = "m.from_b"}
// CHECK: %[[L_NEW:[0-9]+]] = "fred.map"() ({
// CHECK: "fred.read"(%[[L_A]])
// CHECK: math.exp
// CHECK: "fred.read"(%[[L_B]])
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: value = "l.new"}
// CHECK: "fred.next"(%[[L_NEW]])

// What has to be repaired is not simply combined.

// OTHER: "fred.rolling"
// OTHER-NOT: value = "m.from_a"
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
