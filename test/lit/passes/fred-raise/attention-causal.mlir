// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// Positions become fred.index: the mask is nowhere in memory.

// CHECK-LABEL: func.func @causal2(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<1x2x12x8xf32>, %[[ARG1:[a-z_0-9]+]]: tensor<1x2x12x8xf32>, %[[ARG2:[a-z_0-9]+]]: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG1]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_0:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG0]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_1:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG2]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = "fred.chain"(%[[COLLAPSED]], %[[COLLAPSED_0]], %[[COLLAPSED_1]]) ({
// CHECK-NEXT: ^bb0(%[[ARG3:[a-z_0-9]+]]: tensor<2x12x8xf32>, %[[ARG4:[a-z_0-9]+]]: tensor<2x12x8xf32>, %[[ARG5:[a-z_0-9]+]]: tensor<2x12x8xf32>):
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V10:[a-z_0-9]+]] = "fred.read"(%[[ARG4]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V11:[a-z_0-9]+]] = "fred.read"(%[[ARG3]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V12:[a-z_0-9]+]] = arith.mulf %[[V10]], %[[V11]] : f32
// CHECK-NEXT: "fred.yield"(%[[V12]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], combine = "add", initial = 0.000000e+00 : f32, over = ["k"], value = "v0"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V1]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[CST:[a-z_0-9]+]] = arith.constant 0.353553385 : f32
// CHECK-NEXT: %[[V11]] = arith.mulf %[[V10]], %[[CST]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v1"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V10]] = "fred.index"() {axis = "l"} : () -> index
// CHECK-NEXT: %[[V11]] = arith.index_cast %[[V10]] : index to i64
// CHECK-NEXT: %[[V12]] = "fred.index"() {axis = "j"} : () -> index
// CHECK-NEXT: %[[V13:[a-z_0-9]+]] = arith.index_cast %[[V12]] : index to i64
// CHECK-NEXT: %[[V14:[a-z_0-9]+]] = arith.cmpi sge, %[[V11]], %[[V13]] : i64
// CHECK-NEXT: %[[V15:[a-z_0-9]+]] = "fred.read"(%[[V2]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[CST]] = arith.constant 0xFF800000 : f32
// CHECK-NEXT: %[[V16:[a-z_0-9]+]] = arith.select %[[V14]], %[[V15]], %[[CST]] : f32
// CHECK-NEXT: "fred.yield"(%[[V16]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v2"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V3]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V10]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v3"} : () -> tensor<2x12xf32>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V3]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V4]]) : (tensor<2x12xf32>) -> f32
// CHECK-NEXT: %[[V12]] = arith.subf %[[V10]], %[[V11]] : f32
// CHECK-NEXT: "fred.yield"(%[[V12]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v4"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V5]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V11]] = math.exp %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v5"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V6]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V10]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v6"} : () -> tensor<2x12xf32>
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V6]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V7]]) : (tensor<2x12xf32>) -> f32
// CHECK-NEXT: %[[V12]] = arith.divf %[[V10]], %[[V11]] : f32
// CHECK-NEXT: "fred.yield"(%[[V12]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v7"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V8]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[ARG5]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V12]] = arith.mulf %[[V10]], %[[V11]] : f32
// CHECK-NEXT: "fred.yield"(%[[V12]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "m"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v8"} : () -> tensor<2x12x8xf32>
// CHECK-NEXT: "fred.output"(%[[V9]]) : (tensor<2x12x8xf32>) -> ()
// CHECK-NEXT: }) {axes = ["i", "j", "k", "l", "m"], inputs = {{\[\[}}"i", "j", "k"], ["i", "l", "k"], ["i", "j", "m"{{\]\]}}, names = ["x0", "x1", "x2"], {{.*}}sizes = [2, 12, 8, 12, 8]} : (tensor<2x12x8xf32>, tensor<2x12x8xf32>, tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
// CHECK-NEXT: %[[EXPANDED:[a-z_0-9]+]] = tensor.expand_shape %[[V0]] {{\[\[}}0, 1], [2], [3{{\]\]}} output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
// CHECK-NEXT: return %[[EXPANDED]] : tensor<1x2x12x8xf32>

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d0, 0)>
#map3 = affine_map<(d0, d1) -> (0, d1)>
#map4 = affine_map<(d0, d1) -> (d0, d1)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map6 = affine_map<(d0, d1, d2, d3) -> ()>
#map7 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
func.func @causal2(%arg0: tensor<1x2x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0.000000e+00 : f32
  %cst_0 = arith.constant 0xFF800000 : f32
  %cst_1 = arith.constant dense<0xFF800000> : tensor<f32>
  %cst_2 = arith.constant 0.35355339059327379 : f64
  %0 = tensor.empty() : tensor<1x2x8x12xf32>
  %transposed = linalg.transpose ins(%arg1 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x8x12xf32>) permutation = [0, 1, 3, 2] 
  %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x2x8x12xf32> into tensor<2x8x12xf32>
  %1 = tensor.empty() : tensor<2x12x12xf32>
  %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %3 = linalg.batch_matmul ins(%collapsed, %collapsed_3 : tensor<2x12x8xf32>, tensor<2x8x12xf32>) outs(%2 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %expanded = tensor.expand_shape %3 [[0, 1], [2], [3]] output_shape [1, 2, 12, 12] : tensor<2x12x12xf32> into tensor<1x2x12x12xf32>
  %4 = tensor.empty() : tensor<1x2x12x12xf32>
  %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %25 = arith.truncf %cst_2 : f64 to f32
    %26 = arith.mulf %in, %25 : f32
    linalg.yield %26 : f32
  } -> tensor<1x2x12x12xf32>
  %6 = tensor.empty() : tensor<12xi64>
  %7 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel"]} outs(%6 : tensor<12xi64>) {
  ^bb0(%out: i64):
    %25 = linalg.index 0 : index
    %26 = arith.index_cast %25 : index to i64
    linalg.yield %26 : i64
  } -> tensor<12xi64>
  %expanded_4 = tensor.expand_shape %7 [[0, 1]] output_shape [12, 1] : tensor<12xi64> into tensor<12x1xi64>
  %expanded_5 = tensor.expand_shape %7 [[0, 1]] output_shape [1, 12] : tensor<12xi64> into tensor<1x12xi64>
  %8 = tensor.empty() : tensor<12x12xi1>
  %9 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel"]} ins(%expanded_4, %expanded_5 : tensor<12x1xi64>, tensor<1x12xi64>) outs(%8 : tensor<12x12xi1>) {
  ^bb0(%in: i64, %in_10: i64, %out: i1):
    %25 = arith.cmpi sge, %in, %in_10 : i64
    linalg.yield %25 : i1
  } -> tensor<12x12xi1>
  %10 = linalg.generic {indexing_maps = [#map5, #map, #map6, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9, %5, %cst_1 : tensor<12x12xi1>, tensor<1x2x12x12xf32>, tensor<f32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: i1, %in_10: f32, %in_11: f32, %out: f32):
    %25 = arith.select %in, %in_10, %in_11 : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %11 = tensor.empty() : tensor<1x2x12xi64>
  %12 = linalg.fill ins(%c0_i64 : i64) outs(%11 : tensor<1x2x12xi64>) -> tensor<1x2x12xi64>
  %13 = tensor.empty() : tensor<1x2x12xf32>
  %14 = linalg.fill ins(%cst_0 : f32) outs(%13 : tensor<1x2x12xf32>) -> tensor<1x2x12xf32>
  %15:2 = linalg.generic {indexing_maps = [#map, #map7, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%10 : tensor<1x2x12x12xf32>) outs(%14, %12 : tensor<1x2x12xf32>, tensor<1x2x12xi64>) {
  ^bb0(%in: f32, %out: f32, %out_10: i64):
    %25 = linalg.index 3 : index
    %26 = arith.index_cast %25 : index to i64
    %27 = arith.maximumf %in, %out : f32
    %28 = arith.cmpf ogt, %in, %out : f32
    %29 = arith.select %28, %26, %out_10 : i64
    linalg.yield %27, %29 : f32, i64
  } -> (tensor<1x2x12xf32>, tensor<1x2x12xi64>)
  %expanded_6 = tensor.expand_shape %15#0 [[0], [1], [2, 3]] output_shape [1, 2, 12, 1] : tensor<1x2x12xf32> into tensor<1x2x12x1xf32>
  %16 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%10, %expanded_6 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_10: f32, %out: f32):
    %25 = arith.subf %in, %in_10 : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %17 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%16 : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %25 = math.exp %in : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %18 = tensor.empty() : tensor<1x2x12x1xf32>
  %19 = linalg.fill ins(%cst : f32) outs(%18 : tensor<1x2x12x1xf32>) -> tensor<1x2x12x1xf32>
  %20 = linalg.generic {indexing_maps = [#map, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%17 : tensor<1x2x12x12xf32>) outs(%19 : tensor<1x2x12x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %25 = arith.addf %in, %out : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x1xf32>
  %21 = linalg.generic {indexing_maps = [#map, #map8, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%17, %20 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_10: f32, %out: f32):
    %25 = arith.divf %in, %in_10 : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %collapsed_7 = tensor.collapse_shape %21 [[0, 1], [2], [3]] : tensor<1x2x12x12xf32> into tensor<2x12x12xf32>
  %collapsed_8 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %22 = tensor.empty() : tensor<2x12x8xf32>
  %23 = linalg.fill ins(%cst : f32) outs(%22 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %24 = linalg.batch_matmul ins(%collapsed_7, %collapsed_8 : tensor<2x12x12xf32>, tensor<2x12x8xf32>) outs(%23 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %expanded_9 = tensor.expand_shape %24 [[0, 1], [2], [3]] output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
  return %expanded_9 : tensor<1x2x12x8xf32>
}
