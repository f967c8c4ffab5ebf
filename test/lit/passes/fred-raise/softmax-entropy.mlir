// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// A chain that has no name: two uses of one row of exponentials.

// CHECK-LABEL: func.func @entropy(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<5x7xf32>) -> tensor<5xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = "fred.chain"(%[[ARG0]]) ({
// CHECK-NEXT: ^bb0(%[[ARG1:[a-z_0-9]+]]: tensor<5x7xf32>):
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V11:[a-z_0-9]+]] = "fred.read"(%[[ARG1]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[ARG1]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V12:[a-z_0-9]+]] = "fred.read"(%[[V1]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[V13:[a-z_0-9]+]] = arith.subf %[[V11]], %[[V12]] : f32
// CHECK-NEXT: "fred.yield"(%[[V13]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], value = "v1"} : () -> tensor<5x7xf32>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V2]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V12]] = math.exp %[[V11]] : f32
// CHECK-NEXT: "fred.yield"(%[[V12]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], value = "v2"} : () -> tensor<5x7xf32>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V3]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v3"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V3]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V12]] = "fred.read"(%[[V4]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[V13]] = arith.divf %[[V11]], %[[V12]] : f32
// CHECK-NEXT: "fred.yield"(%[[V13]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], value = "v4"} : () -> tensor<5x7xf32>
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V4]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[V12]] = math.log %[[V11]] : f32
// CHECK-NEXT: "fred.yield"(%[[V12]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v5"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V2]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V12]] = "fred.read"(%[[V6]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[V13]] = arith.subf %[[V11]], %[[V12]] : f32
// CHECK-NEXT: "fred.yield"(%[[V13]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], value = "v6"} : () -> tensor<5x7xf32>
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V5]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V12]] = "fred.read"(%[[V7]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: %[[V13]] = arith.mulf %[[V11]], %[[V12]] : f32
// CHECK-NEXT: "fred.yield"(%[[V13]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], value = "v7"} : () -> tensor<5x7xf32>
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V8]]) : (tensor<5x7xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v8"} : () -> tensor<5xf32>
// CHECK-NEXT: %[[V10:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V11]] = "fred.read"(%[[V9]]) : (tensor<5xf32>) -> f32
// CHECK-NEXT: %[[V12]] = arith.negf %[[V11]] : f32
// CHECK-NEXT: "fred.yield"(%[[V12]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i"], value = "v9"} : () -> tensor<5xf32>
// CHECK-NEXT: "fred.output"(%[[V10]]) : (tensor<5xf32>) -> ()
// CHECK-NEXT: }) {axes = ["i", "j"], inputs = {{\[\[}}"i", "j"{{\]\]}}, names = ["x0"], {{.*}}sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
// CHECK-NEXT: return %[[V0]] : tensor<5xf32>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d0, 0)>
#map3 = affine_map<(d0) -> (d0)>
func.func @entropy(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0xFF800000 : f32
  %cst_0 = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<5xi64>
  %1 = linalg.fill ins(%c0_i64 : i64) outs(%0 : tensor<5xi64>) -> tensor<5xi64>
  %2 = tensor.empty() : tensor<5xf32>
  %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<5xf32>) -> tensor<5xf32>
  %4:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<5x7xf32>) outs(%3, %1 : tensor<5xf32>, tensor<5xi64>) {
  ^bb0(%in: f32, %out: f32, %out_1: i64):
    %18 = linalg.index 1 : index
    %19 = arith.index_cast %18 : index to i64
    %20 = arith.maximumf %in, %out : f32
    %21 = arith.cmpf ogt, %in, %out : f32
    %22 = arith.select %21, %19, %out_1 : i64
    linalg.yield %20, %22 : f32, i64
  } -> (tensor<5xf32>, tensor<5xi64>)
  %expanded = tensor.expand_shape %4#0 [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %5 = tensor.empty() : tensor<5x7xf32>
  %6 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %expanded : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.subf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<5x7xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = math.exp %in : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %8 = tensor.empty() : tensor<5x1xf32>
  %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<5x1xf32>) -> tensor<5x1xf32>
  %10 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "reduction"]} ins(%7 : tensor<5x7xf32>) outs(%9 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = arith.addf %in, %out : f32
    linalg.yield %18 : f32
  } -> tensor<5x1xf32>
  %11 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%7, %10 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.divf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %12 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%10 : tensor<5x1xf32>) outs(%8 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = math.log %in : f32
    linalg.yield %18 : f32
  } -> tensor<5x1xf32>
  %13 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%6, %12 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.subf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %14 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%11, %13 : tensor<5x7xf32>, tensor<5x7xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.mulf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %15 = linalg.fill ins(%cst_0 : f32) outs(%2 : tensor<5xf32>) -> tensor<5xf32>
  %16 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%14 : tensor<5x7xf32>) outs(%15 : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = arith.addf %in, %out : f32
    linalg.yield %18 : f32
  } -> tensor<5xf32>
  %17 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel"]} ins(%16 : tensor<5xf32>) outs(%2 : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = arith.negf %in : f32
    linalg.yield %18 : f32
  } -> tensor<5xf32>
  return %17 : tensor<5xf32>
}
