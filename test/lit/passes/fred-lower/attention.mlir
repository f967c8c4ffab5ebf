// RUN: covan-opt %s -p 'func.func(fred-lower)' | FileCheck %s

// Products become generic ops over the axes of the chain.

// CHECK-LABEL: func.func @attn(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<1x2x12x8xf32>, %[[ARG1:[a-z_0-9]+]]: tensor<1x2x12x8xf32>, %[[ARG2:[a-z_0-9]+]]: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG1]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_0:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG0]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_1:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG2]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = tensor.empty() : tensor<2x12x12xf32>
// CHECK-NEXT: %[[CST:[a-z_0-9]+]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = linalg.fill ins(%[[CST]] : f32) outs(%[[V0]] : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[COLLAPSED]], %[[COLLAPSED_0]] : tensor<2x12x8xf32>, tensor<2x12x8xf32>) outs(%[[V1]] : tensor<2x12x12xf32>) {
// CHECK-NEXT: ^bb0(%[[IN:[a-z_0-9]+]]: f32, %[[IN_5:[a-z_0-9]+]]: f32, %[[OUT:[a-z_0-9]+]]: f32):
// CHECK-NEXT: %[[V20:[a-z_0-9]+]] = arith.mulf %[[IN_5]], %[[IN]] : f32
// CHECK-NEXT: %[[V21:[a-z_0-9]+]] = arith.addf %[[V20]], %[[OUT]] : f32
// CHECK-NEXT: linalg.yield %[[V21]] : f32
// CHECK-NEXT: } -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = tensor.empty() : tensor<2x12x12xf32>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%[[V2]] : tensor<2x12x12xf32>) outs(%[[V3]] : tensor<2x12x12xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[CST_5:[a-z_0-9]+]] = arith.constant 2.82842708 : f32
// CHECK-NEXT: %[[V20]] = arith.divf %[[IN]], %[[CST_5]] : f32
// CHECK-NEXT: linalg.yield %[[V20]] : f32
// CHECK-NEXT: } -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = tensor.empty() : tensor<2x12xf32>
// CHECK-NEXT: %[[CST_2:[a-z_0-9]+]] = arith.constant 0xFF800000 : f32
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = linalg.fill ins(%[[CST_2]] : f32) outs(%[[V5]] : tensor<2x12xf32>) -> tensor<2x12xf32>
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map3, #map4], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[V4]] : tensor<2x12x12xf32>) outs(%[[V6]] : tensor<2x12xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V20]] = arith.maximumf %[[IN]], %[[OUT]] : f32
// CHECK-NEXT: linalg.yield %[[V20]] : f32
// CHECK-NEXT: } -> tensor<2x12xf32>
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = tensor.empty() : tensor<2x12x12xf32>
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%[[V4]], %[[V7]] : tensor<2x12x12xf32>, tensor<2x12xf32>) outs(%[[V8]] : tensor<2x12x12xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[IN_5]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V20]] = arith.subf %[[IN]], %[[IN_5]] : f32
// CHECK-NEXT: linalg.yield %[[V20]] : f32
// CHECK-NEXT: } -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V10:[a-z_0-9]+]] = tensor.empty() : tensor<2x12x12xf32>
// CHECK-NEXT: %[[V11:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%[[V9]] : tensor<2x12x12xf32>) outs(%[[V10]] : tensor<2x12x12xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V20]] = math.exp %[[IN]] : f32
// CHECK-NEXT: linalg.yield %[[V20]] : f32
// CHECK-NEXT: } -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V12:[a-z_0-9]+]] = tensor.empty() : tensor<2x12xf32>
// CHECK-NEXT: %[[CST_3:[a-z_0-9]+]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %[[V13:[a-z_0-9]+]] = linalg.fill ins(%[[CST_3]] : f32) outs(%[[V12]] : tensor<2x12xf32>) -> tensor<2x12xf32>
// CHECK-NEXT: %[[V14:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map3, #map4], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[V11]] : tensor<2x12x12xf32>) outs(%[[V13]] : tensor<2x12xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V20]] = arith.addf %[[IN]], %[[OUT]] : f32
// CHECK-NEXT: linalg.yield %[[V20]] : f32
// CHECK-NEXT: } -> tensor<2x12xf32>
// CHECK-NEXT: %[[V15:[a-z_0-9]+]] = tensor.empty() : tensor<2x12x12xf32>
// CHECK-NEXT: %[[V16:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%[[V11]], %[[V14]] : tensor<2x12x12xf32>, tensor<2x12xf32>) outs(%[[V15]] : tensor<2x12x12xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[IN_5]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V20]] = arith.divf %[[IN]], %[[IN_5]] : f32
// CHECK-NEXT: linalg.yield %[[V20]] : f32
// CHECK-NEXT: } -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V17:[a-z_0-9]+]] = tensor.empty() : tensor<2x12x8xf32>
// CHECK-NEXT: %[[CST_4:[a-z_0-9]+]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %[[V18:[a-z_0-9]+]] = linalg.fill ins(%[[CST_4]] : f32) outs(%[[V17]] : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
// CHECK-NEXT: %[[V19:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map5, #map1, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[COLLAPSED_1]], %[[V16]] : tensor<2x12x8xf32>, tensor<2x12x12xf32>) outs(%[[V18]] : tensor<2x12x8xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[IN_5]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V20]] = arith.mulf %[[IN_5]], %[[IN]] : f32
// CHECK-NEXT: %[[V21]] = arith.addf %[[V20]], %[[OUT]] : f32
// CHECK-NEXT: linalg.yield %[[V21]] : f32
// CHECK-NEXT: } -> tensor<2x12x8xf32>
// CHECK-NEXT: %[[EXPANDED:[a-z_0-9]+]] = tensor.expand_shape %[[V19]] {{\[\[}}0, 1], [2], [3{{\]\]}} output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
// CHECK-NEXT: return %[[EXPANDED]] : tensor<1x2x12x8xf32>

func.func @attn(%arg0: tensor<1x2x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %collapsed = tensor.collapse_shape %arg1 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_0 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_1 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %0 = "fred.chain"(%collapsed, %collapsed_0, %collapsed_1) ({
  ^bb0(%arg3: tensor<2x12x8xf32>, %arg4: tensor<2x12x8xf32>, %arg5: tensor<2x12x8xf32>):
    %1 = "fred.reduce"() ({
      %9 = "fred.read"(%arg4) : (tensor<2x12x8xf32>) -> f32
      %10 = "fred.read"(%arg3) : (tensor<2x12x8xf32>) -> f32
      %11 = arith.mulf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "j"], combine = "add", initial = 0.000000e+00 : f32, over = ["k"], value = "v0"} : () -> tensor<2x12x12xf32>
    %2 = "fred.map"() ({
      %9 = "fred.read"(%1) : (tensor<2x12x12xf32>) -> f32
      %cst = arith.constant 2.82842708 : f32
      %10 = arith.divf %9, %cst : f32
      "fred.yield"(%10) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v1"} : () -> tensor<2x12x12xf32>
    %3 = "fred.reduce"() ({
      %9 = "fred.read"(%2) : (tensor<2x12x12xf32>) -> f32
      "fred.yield"(%9) : (f32) -> ()
    }) {axes = ["i", "l"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v2"} : () -> tensor<2x12xf32>
    %4 = "fred.map"() ({
      %9 = "fred.read"(%2) : (tensor<2x12x12xf32>) -> f32
      %10 = "fred.read"(%3) : (tensor<2x12xf32>) -> f32
      %11 = arith.subf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v3"} : () -> tensor<2x12x12xf32>
    %5 = "fred.map"() ({
      %9 = "fred.read"(%4) : (tensor<2x12x12xf32>) -> f32
      %10 = math.exp %9 : f32
      "fred.yield"(%10) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v4"} : () -> tensor<2x12x12xf32>
    %6 = "fred.reduce"() ({
      %9 = "fred.read"(%5) : (tensor<2x12x12xf32>) -> f32
      "fred.yield"(%9) : (f32) -> ()
    }) {axes = ["i", "l"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v5"} : () -> tensor<2x12xf32>
    %7 = "fred.map"() ({
      %9 = "fred.read"(%5) : (tensor<2x12x12xf32>) -> f32
      %10 = "fred.read"(%6) : (tensor<2x12xf32>) -> f32
      %11 = arith.divf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v6"} : () -> tensor<2x12x12xf32>
    %8 = "fred.reduce"() ({
      %9 = "fred.read"(%7) : (tensor<2x12x12xf32>) -> f32
      %10 = "fred.read"(%arg5) : (tensor<2x12x8xf32>) -> f32
      %11 = arith.mulf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "m"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v7"} : () -> tensor<2x12x8xf32>
    "fred.output"(%8) : (tensor<2x12x8xf32>) -> ()
  }) {axes = ["i", "j", "k", "l", "m"], inputs = [["i", "j", "k"], ["i", "l", "k"], ["i", "j", "m"]], names = ["x0", "x1", "x2"], operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, sizes = [2, 12, 8, 12, 8]} : (tensor<2x12x8xf32>, tensor<2x12x8xf32>, tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %expanded = tensor.expand_shape %0 [[0, 1], [2], [3]] output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
  return %expanded : tensor<1x2x12x8xf32>
}
