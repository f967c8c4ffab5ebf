// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// The variance is computed in f64, the mean in f32: three reductions of one input are one chain.
// Weights are inputs of it.

// CHECK-LABEL: func.func @layernorm(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
// CHECK-NEXT: %[[CST:[a-z_0-9]+]] = arith.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00, 5.000000e+00, 6.000000e+00, 7.000000e+00]> : tensor<7xf32>
// CHECK-NEXT: %[[CST_0:[a-z_0-9]+]] = arith.constant dense<[7.000000e+00, 6.000000e+00, 5.000000e+00, 4.000000e+00, 3.000000e+00, 2.000000e+00, 1.000000e+00]> : tensor<7xf32>
// CHECK-NEXT: %[[COLLAPSED:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG0]] {{\[\[}}0, 1], [2{{\]\]}} : tensor<2x5x7xf32> into tensor<10x7xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = "fred.chain"(%[[COLLAPSED]], %[[CST_0]], %[[CST]]) ({
// CHECK-NEXT: ^bb0(%[[ARG1:[a-z_0-9]+]]: tensor<10x7xf32>, %[[ARG2:[a-z_0-9]+]]: tensor<7xf32>, %[[ARG3:[a-z_0-9]+]]: tensor<7xf32>):
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17:[a-z_0-9]+]] = "fred.read"(%[[ARG1]]) : (tensor<10x7xf32>) -> f32
// CHECK-NEXT: %[[V18:[a-z_0-9]+]] = arith.extf %[[V17]] : f32 to f64
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f64) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], value = "v0"} : () -> tensor<10x7xf64>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V1]]) : (tensor<10x7xf64>) -> f64
// CHECK-NEXT: "fred.yield"(%[[V17]]) : (f64) -> ()
// CHECK-NEXT: }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f64, over = ["k"], value = "v1"} : () -> tensor<10xf64>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V2]]) : (tensor<10xf64>) -> f64
// CHECK-NEXT: %[[CST_1:[a-z_0-9]+]] = arith.constant 7.000000e+00 : f64
// CHECK-NEXT: %[[V18]] = arith.divf %[[V17]], %[[CST_1]] : f64
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f64) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v2"} : () -> tensor<10xf64>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V1]]) : (tensor<10x7xf64>) -> f64
// CHECK-NEXT: %[[V18]] = "fred.read"(%[[V3]]) : (tensor<10xf64>) -> f64
// CHECK-NEXT: %[[V19:[a-z_0-9]+]] = arith.subf %[[V17]], %[[V18]] : f64
// CHECK-NEXT: "fred.yield"(%[[V19]]) : (f64) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], value = "v3"} : () -> tensor<10x7xf64>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V4]]) : (tensor<10x7xf64>) -> f64
// CHECK-NEXT: %[[V18]] = arith.mulf %[[V17]], %[[V17]] : f64
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f64) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], value = "v4"} : () -> tensor<10x7xf64>
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V5]]) : (tensor<10x7xf64>) -> f64
// CHECK-NEXT: "fred.yield"(%[[V17]]) : (f64) -> ()
// CHECK-NEXT: }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f64, over = ["k"], value = "v5"} : () -> tensor<10xf64>
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V6]]) : (tensor<10xf64>) -> f64
// CHECK-NEXT: %[[CST_1]] = arith.constant 7.000000e+00 : f64
// CHECK-NEXT: %[[V18]] = arith.divf %[[V17]], %[[CST_1]] : f64
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f64) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v6"} : () -> tensor<10xf64>
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V7]]) : (tensor<10xf64>) -> f64
// CHECK-NEXT: %[[V18]] = arith.truncf %[[V17]] : f64 to f32
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v7"} : () -> tensor<10xf32>
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[ARG1]]) : (tensor<10x7xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V17]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["k"], value = "v8"} : () -> tensor<10xf32>
// CHECK-NEXT: %[[V10:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V9]]) : (tensor<10xf32>) -> f32
// CHECK-NEXT: %[[CST_1]] = arith.constant 7.000000e+00 : f32
// CHECK-NEXT: %[[V18]] = arith.divf %[[V17]], %[[CST_1]] : f32
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v9"} : () -> tensor<10xf32>
// CHECK-NEXT: %[[V11:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V8]]) : (tensor<10xf32>) -> f32
// CHECK-NEXT: %[[CST_1]] = arith.constant 9.99999974E-6 : f32
// CHECK-NEXT: %[[V18]] = arith.addf %[[V17]], %[[CST_1]] : f32
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v10"} : () -> tensor<10xf32>
// CHECK-NEXT: %[[V12:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V11]]) : (tensor<10xf32>) -> f32
// CHECK-NEXT: %[[V18]] = math.rsqrt %[[V17]] : f32
// CHECK-NEXT: "fred.yield"(%[[V18]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v11"} : () -> tensor<10xf32>
// CHECK-NEXT: %[[V13:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[ARG1]]) : (tensor<10x7xf32>) -> f32
// CHECK-NEXT: %[[V18]] = "fred.read"(%[[V10]]) : (tensor<10xf32>) -> f32
// CHECK-NEXT: %[[V19]] = arith.subf %[[V17]], %[[V18]] : f32
// CHECK-NEXT: "fred.yield"(%[[V19]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], value = "v12"} : () -> tensor<10x7xf32>
// CHECK-NEXT: %[[V14:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V13]]) : (tensor<10x7xf32>) -> f32
// CHECK-NEXT: %[[V18]] = "fred.read"(%[[V12]]) : (tensor<10xf32>) -> f32
// CHECK-NEXT: %[[V19]] = arith.mulf %[[V17]], %[[V18]] : f32
// CHECK-NEXT: "fred.yield"(%[[V19]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], value = "v13"} : () -> tensor<10x7xf32>
// CHECK-NEXT: %[[V15:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V14]]) : (tensor<10x7xf32>) -> f32
// CHECK-NEXT: %[[V18]] = "fred.read"(%[[ARG2]]) : (tensor<7xf32>) -> f32
// CHECK-NEXT: %[[V19]] = arith.mulf %[[V17]], %[[V18]] : f32
// CHECK-NEXT: "fred.yield"(%[[V19]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], value = "v14"} : () -> tensor<10x7xf32>
// CHECK-NEXT: %[[V16:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V17]] = "fred.read"(%[[V15]]) : (tensor<10x7xf32>) -> f32
// CHECK-NEXT: %[[V18]] = "fred.read"(%[[ARG3]]) : (tensor<7xf32>) -> f32
// CHECK-NEXT: %[[V19]] = arith.addf %[[V17]], %[[V18]] : f32
// CHECK-NEXT: "fred.yield"(%[[V19]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], value = "v15"} : () -> tensor<10x7xf32>
// CHECK-NEXT: "fred.output"(%[[V16]]) : (tensor<10x7xf32>) -> ()
// CHECK-NEXT: }) {axes = ["i", "k"], inputs = {{\[\[}}"i", "k"], ["k"], ["k"{{\]\]}}, names = ["x0", "x1", "x2"], {{.*}}sizes = [10, 7]} : (tensor<10x7xf32>, tensor<7xf32>, tensor<7xf32>) -> tensor<10x7xf32>
// CHECK-NEXT: %[[EXPANDED:[a-z_0-9]+]] = tensor.expand_shape %[[V0]] {{\[\[}}0, 1], [2{{\]\]}} output_shape [2, 5, 7] : tensor<10x7xf32> into tensor<2x5x7xf32>
// CHECK-NEXT: return %[[EXPANDED]] : tensor<2x5x7xf32>

#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
#map2 = affine_map<(d0, d1, d2) -> (d2)>
func.func @layernorm(%arg0: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
  %cst = arith.constant 0.000000e+00 : f64
  %cst_0 = arith.constant 0.000000e+00 : f32
  %cst_1 = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : tensor<7xf32>
  %cst_2 = arith.constant dense<[7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]> : tensor<7xf32>
  %cst_3 = arith.constant 1.000000e-05 : f64
  %cst_4 = arith.constant 7.000000e+00 : f64
  %cst_5 = arith.constant 7.000000e+00 : f32
  %0 = tensor.empty() : tensor<2x5x7xf64>
  %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg0 : tensor<2x5x7xf32>) outs(%0 : tensor<2x5x7xf64>) {
  ^bb0(%in: f32, %out: f64):
    %22 = arith.extf %in : f32 to f64
    linalg.yield %22 : f64
  } -> tensor<2x5x7xf64>
  %2 = tensor.empty() : tensor<2x5x1xf64>
  %3 = linalg.fill ins(%cst : f64) outs(%2 : tensor<2x5x1xf64>) -> tensor<2x5x1xf64>
  %4 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%1 : tensor<2x5x7xf64>) outs(%3 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.addf %in, %out : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%4 : tensor<2x5x1xf64>) outs(%2 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.divf %in, %cst_4 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %6 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %5 : tensor<2x5x7xf64>, tensor<2x5x1xf64>) outs(%0 : tensor<2x5x7xf64>) {
  ^bb0(%in: f64, %in_6: f64, %out: f64):
    %22 = arith.subf %in, %in_6 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x7xf64>
  %7 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%6, %6 : tensor<2x5x7xf64>, tensor<2x5x7xf64>) outs(%0 : tensor<2x5x7xf64>) {
  ^bb0(%in: f64, %in_6: f64, %out: f64):
    %22 = arith.mulf %in, %in_6 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x7xf64>
  %8 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%7 : tensor<2x5x7xf64>) outs(%3 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.addf %in, %out : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %9 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%8 : tensor<2x5x1xf64>) outs(%2 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.divf %in, %cst_4 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %10 = tensor.empty() : tensor<2x5x1xf32>
  %11 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%9 : tensor<2x5x1xf64>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f64, %out: f32):
    %22 = arith.truncf %in : f64 to f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %12 = linalg.fill ins(%cst_0 : f32) outs(%10 : tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %13 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%arg0 : tensor<2x5x7xf32>) outs(%12 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = arith.addf %in, %out : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %14 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%13 : tensor<2x5x1xf32>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = arith.divf %in, %cst_5 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %15 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%11 : tensor<2x5x1xf32>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = arith.truncf %cst_3 : f64 to f32
    %23 = arith.addf %in, %22 : f32
    linalg.yield %23 : f32
  } -> tensor<2x5x1xf32>
  %16 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%15 : tensor<2x5x1xf32>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = math.rsqrt %in : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %17 = tensor.empty() : tensor<2x5x7xf32>
  %18 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg0, %14 : tensor<2x5x7xf32>, tensor<2x5x1xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.subf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  %19 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%18, %16 : tensor<2x5x7xf32>, tensor<2x5x1xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.mulf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  %20 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%19, %cst_2 : tensor<2x5x7xf32>, tensor<7xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.mulf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  %21 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%20, %cst_1 : tensor<2x5x7xf32>, tensor<7xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.addf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  return %21 : tensor<2x5x7xf32>
}
