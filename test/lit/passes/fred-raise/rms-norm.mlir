// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// A square is a product.

// CHECK-LABEL: func.func @rms_plain(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<5x7xf32>) -> tensor<5x7xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = "fred.chain"(%[[ARG0]]) ({
// CHECK-NEXT: ^bb0(%[[ARG1:[a-z_0-9]+]]: tensor<5x7xf32>):
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = "fred.read"(%[[ARG1]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = arith.mulf %[[V7]], %[[V7]] : f32
// CHECK-NEXT: "fred.yield"(%[[V8]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], value = "v0"} : () -> tensor<5x7xf32>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V7]] = "fred.read"(%[[V1]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V7]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v1"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V7]] = "fred.read"(%[[V2]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[CST:[a-z_0-9]+]] = arith.constant 7.000000e+00 : f32
// CHECK-NEXT: %[[V8]] = arith.divf %[[V7]], %[[CST]] : f32
// CHECK-NEXT: "fred.yield"(%[[V8]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v2"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V7]] = "fred.read"(%[[V3]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[CST]] = arith.constant 9.99999997E-7 : f32
// CHECK-NEXT: %[[V8]] = arith.addf %[[V7]], %[[CST]] : f32
// CHECK-NEXT: "fred.yield"(%[[V8]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v3"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V7]] = "fred.read"(%[[V4]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[V8]] = math.rsqrt %[[V7]] : f32
// CHECK-NEXT: "fred.yield"(%[[V8]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v4"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V7]] = "fred.read"(%[[ARG1]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V8]] = "fred.read"(%[[V5]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = arith.mulf %[[V7]], %[[V8]] : f32
// CHECK-NEXT: "fred.yield"(%[[V9]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], value = "v5"} : () -> tensor<5x7xf32>
// CHECK-NEXT: "fred.output"(%[[V6]]) : (tensor<5x7xf32>) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], inputs = {{\[\[}}"i", "j"{{\]\]}}, names = ["x0"], {{.*}}sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5x7xf32>
// CHECK-NEXT: return %[[V0]] : tensor<5x7xf32>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0, 0)>
func.func @rms_plain(%arg0: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %c2_i64 = arith.constant 2 : i64
  %cst = arith.constant 0.000000e+00 : f32
  %cst_0 = arith.constant 9.9999999999999995E-7 : f64
  %cst_1 = arith.constant 7.000000e+00 : f32
  %0 = tensor.empty() : tensor<5x7xf32>
  %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<5x7xf32>) outs(%0 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = math.fpowi %in, %c2_i64 : f32, i64
    linalg.yield %9 : f32
  } -> tensor<5x7xf32>
  %2 = tensor.empty() : tensor<5x1xf32>
  %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<5x1xf32>) -> tensor<5x1xf32>
  %4 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<5x7xf32>) outs(%3 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = arith.addf %in, %out : f32
    linalg.yield %9 : f32
  } -> tensor<5x1xf32>
  %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<5x1xf32>) outs(%2 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = arith.divf %in, %cst_1 : f32
    linalg.yield %9 : f32
  } -> tensor<5x1xf32>
  %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%5 : tensor<5x1xf32>) outs(%2 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = arith.truncf %cst_0 : f64 to f32
    %10 = arith.addf %in, %9 : f32
    linalg.yield %10 : f32
  } -> tensor<5x1xf32>
  %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<5x1xf32>) outs(%2 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = math.rsqrt %in : f32
    linalg.yield %9 : f32
  } -> tensor<5x1xf32>
  %8 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %7 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%0 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %9 = arith.mulf %in, %in_2 : f32
    linalg.yield %9 : f32
  } -> tensor<5x7xf32>
  return %8 : tensor<5x7xf32>
}
