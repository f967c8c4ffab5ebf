// RUN: covan-opt %s -p 'func.func(fred-schedule{target=cuda machine=sm_90a list=true})' 2>&1 | FileCheck %s --check-prefix=CUDA
// RUN: covan-opt %s -p 'func.func(fred-schedule{target=vulkan})' | FileCheck %s --check-prefix=VULKAN

// A product has tiles of rows and columns, whose programs run in groups; a convolution has the same.

// CUDA: 0: {{[0-9.eE+-]+}} s product: shape=loop rows=['i'] block_rows={{[0-9]+}} block_stream={{[0-9]+}} block_wide={{[0-9]+}} {{.*}}group=
// CUDA: 1: {{[0-9.eE+-]+}} s product: shape=loop
// CUDA: 0: {{[0-9.eE+-]+}} s product: shape=loop rows=['k'] block_rows={{[0-9]+}}
// CUDA-LABEL: func.func @product
// CUDA: predicted_seconds = {{[0-9.eE+-]+}} : f64
// CUDA-SAME: schedule = {backwards = false, block_rows = {{[0-9]+}} : i64
// CUDA-LABEL: func.func @convolution
// CUDA: predicted_seconds = {{[0-9.eE+-]+}} : f64

// VULKAN: unscheduled = "there is no template for vulkan"
// VULKAN: unscheduled = "it reads x through a window, which no template for vulkan takes"
func.func @product(%a: tensor<256x1024xf16>, %b: tensor<1024x512xf16>) -> tensor<256x512xf16> {
  %y = "fred.chain"(%a, %b) ({
  ^bb0(%left: tensor<256x1024xf16>, %right: tensor<1024x512xf16>):
    %s = "fred.reduce"() ({
      %l = "fred.read"(%left) : (tensor<256x1024xf16>) -> f16
      %r = "fred.read"(%right) : (tensor<1024x512xf16>) -> f16
      %p = arith.mulf %l, %r : f16
      "fred.yield"(%p) : (f16) -> ()
    }) {axes = ["i", "j"], combine = "add", initial = 0.000000e+00 : f16, over = ["k"], value = "s"} : () -> tensor<256x512xf16>
    "fred.output"(%s) : (tensor<256x512xf16>) -> ()
  }) {axes = ["i", "j", "k"], inputs = [["i", "k"], ["k", "j"]], names = ["a", "b"], operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, sizes = [256, 512, 1024]} : (tensor<256x1024xf16>, tensor<1024x512xf16>) -> tensor<256x512xf16>
  return %y : tensor<256x512xf16>
}
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1 + d2 - 1, d3 + d4 - 1)>
func.func @convolution(%arg0: tensor<16x14x14xf16>, %arg1: tensor<32x16x3x3xf16>) -> tensor<32x14x14xf16> {
  %0 = "fred.chain"(%arg0, %arg1) ({
  ^bb0(%arg2: tensor<16x14x14xf16>, %arg3: tensor<32x16x3x3xf16>):
    %1 = "fred.reduce"() ({
      %2 = "fred.window"(%arg2) {along = ["c", "h", "r", "s", "w"], at = #map, outside = 0.000000e+00 : f16} : (tensor<16x14x14xf16>) -> f16
      %3 = "fred.read"(%arg3) : (tensor<32x16x3x3xf16>) -> f16
      %4 = arith.mulf %2, %3 : f16
      "fred.yield"(%4) : (f16) -> ()
    }) {axes = ["k", "h", "w"], combine = "add", initial = 0.000000e+00 : f16, over = ["c", "r", "s"], value = "y"} : () -> tensor<32x14x14xf16>
    "fred.output"(%1) : (tensor<32x14x14xf16>) -> ()
  }) {axes = ["k", "c", "h", "w", "r", "s", "p", "q"], inputs = [["c", "p", "q"], ["k", "c", "r", "s"]], names = ["x", "f"], operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, sizes = [32, 16, 14, 14, 3, 3, 14, 14]} : (tensor<16x14x14xf16>, tensor<32x16x3x3xf16>) -> tensor<32x14x14xf16>
  return %0 : tensor<32x14x14xf16>
}
