// RUN: %segments %s | covan-opt -p 'func.func(fred-lower)' | FileCheck %s

// Positions become linalg.index, sizes constants.

// CHECK-LABEL: func.func @positions(
// CHECK: linalg.fill
// CHECK: %[[R:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]} ins(%{{.*}} : tensor<5x7xf32>)
// CHECK: %[[I:.*]] = linalg.index 1 : index
// CHECK: arith.cmpi slt, %[[I]], %{{.*}} : index
// CHECK: arith.select
// CHECK: arith.addf
// CHECK: return %[[R]]
func.func @positions(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      %i = "fred.index"() {axis = "j"} : () -> index
      %n = "fred.extent"() {axis = "i"} : () -> index
      %c = arith.cmpi slt, %i, %n : index
      %z = arith.constant 0.0 : f32
      %s = arith.select %c, %e, %z : f32
      "fred.yield"(%s) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%m) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
