// RUN: %segments %s | covan-opt -p 'func.func(fred-lower)' | FileCheck %s

// Each step is one linalg.generic again, without the position of the maximum and without sizes of 1.

// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @softmax(
// CHECK-SAME: %[[X:.*]]: tensor<5x7xf32>)
// CHECK: %[[LEAST:.*]] = arith.constant 0xFF800000 : f32
// CHECK: %[[START:.*]] = linalg.fill ins(%[[LEAST]]
// CHECK: %[[M:.*]] = linalg.generic {indexing_maps = [#[[ROWS]], #[[ROW]]], {{.*}}["parallel", "reduction"]} ins(%[[X]] : {{.*}}) outs(%[[START]]
// CHECK: arith.maximumf
// CHECK: %[[D:.*]] = linalg.generic {indexing_maps = [#[[ROWS]], #[[ROW]], #[[ROWS]]], {{.*}}["parallel", "parallel"]} ins(%[[X]], %[[M]]
// CHECK: arith.subf
// CHECK: %[[E:.*]] = linalg.generic {{.*}} ins(%[[D]]
// CHECK: math.exp
// CHECK: %[[S:.*]] = linalg.generic {{.*}}["parallel", "reduction"]} ins(%[[E]]
// CHECK: arith.addf
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%[[E]], %[[S]]
// CHECK: arith.divf
// CHECK-NOT: linalg.generic
// CHECK: return %[[Y]]
func.func @softmax(%arg0: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %0 = "fred.chain"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %6 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
    %2 = "fred.map"() ({
      %6 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      %7 = "fred.read"(%1) : (tensor<5xf32>) -> f32
      %8 = arith.subf %6, %7 : f32
      "fred.yield"(%8) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v1"} : () -> tensor<5x7xf32>
    %3 = "fred.map"() ({
      %6 = "fred.read"(%2) : (tensor<5x7xf32>) -> f32
      %7 = math.exp %6 : f32
      "fred.yield"(%7) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v2"} : () -> tensor<5x7xf32>
    %4 = "fred.reduce"() ({
      %6 = "fred.read"(%3) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%6) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v3"} : () -> tensor<5xf32>
    %5 = "fred.map"() ({
      %6 = "fred.read"(%3) : (tensor<5x7xf32>) -> f32
      %7 = "fred.read"(%4) : (tensor<5xf32>) -> f32
      %8 = arith.divf %6, %7 : f32
      "fred.yield"(%8) : (f32) -> ()
    }) {axes = ["i", "j"], value = "v4"} : () -> tensor<5x7xf32>
    "fred.output"(%5) : (tensor<5x7xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}
