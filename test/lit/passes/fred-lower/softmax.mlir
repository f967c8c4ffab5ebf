// RUN: covan-opt %s -p 'func.func(fred-lower)' | FileCheck %s

// Each step is one linalg.generic again, without the position of the maximum and without sizes of 1.

// CHECK-LABEL: func.func @softmax(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<5x7xf32>) -> tensor<5x7xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = tensor.empty() : tensor<5xf32>
// CHECK-NEXT: %[[CST:[a-z_0-9]+]] = arith.constant 0xFF800000 : f32
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = linalg.fill ins(%[[CST]] : f32) outs(%[[V0]] : tensor<5xf32>) -> tensor<5xf32>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%[[ARG0]] : tensor<5x7xf32>) outs(%[[V1]] : tensor<5xf32>) {
// CHECK-NEXT: ^bb0(%[[IN:[a-z_0-9]+]]: f32, %[[OUT:[a-z_0-9]+]]: f32):
// CHECK-NEXT: %[[V12:[a-z_0-9]+]] = arith.maximumf %[[IN]], %[[OUT]] : f32
// CHECK-NEXT: linalg.yield %[[V12]] : f32
// CHECK-NEXT: } -> tensor<5xf32>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = tensor.empty() : tensor<5x7xf32>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%[[ARG0]], %[[V2]] : tensor<5x7xf32>, tensor<5xf32>) outs(%[[V3]] : tensor<5x7xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[IN_1:[a-z_0-9]+]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V12]] = arith.subf %[[IN]], %[[IN_1]] : f32
// CHECK-NEXT: linalg.yield %[[V12]] : f32
// CHECK-NEXT: } -> tensor<5x7xf32>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = tensor.empty() : tensor<5x7xf32>
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%[[V4]] : tensor<5x7xf32>) outs(%[[V5]] : tensor<5x7xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V12]] = math.exp %[[IN]] : f32
// CHECK-NEXT: linalg.yield %[[V12]] : f32
// CHECK-NEXT: } -> tensor<5x7xf32>
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = tensor.empty() : tensor<5xf32>
// CHECK-NEXT: %[[CST_0:[a-z_0-9]+]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = linalg.fill ins(%[[CST_0]] : f32) outs(%[[V7]] : tensor<5xf32>) -> tensor<5xf32>
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%[[V6]] : tensor<5x7xf32>) outs(%[[V8]] : tensor<5xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V12]] = arith.addf %[[IN]], %[[OUT]] : f32
// CHECK-NEXT: linalg.yield %[[V12]] : f32
// CHECK-NEXT: } -> tensor<5xf32>
// CHECK-NEXT: %[[V10:[a-z_0-9]+]] = tensor.empty() : tensor<5x7xf32>
// CHECK-NEXT: %[[V11:[a-z_0-9]+]] = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%[[V6]], %[[V9]] : tensor<5x7xf32>, tensor<5xf32>) outs(%[[V10]] : tensor<5x7xf32>) {
// CHECK-NEXT: ^bb0(%[[IN]]: f32, %[[IN_1]]: f32, %[[OUT]]: f32):
// CHECK-NEXT: %[[V12]] = arith.divf %[[IN]], %[[IN_1]] : f32
// CHECK-NEXT: linalg.yield %[[V12]] : f32
// CHECK-NEXT: } -> tensor<5x7xf32>
// CHECK-NEXT: return %[[V11]] : tensor<5x7xf32>

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
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}
