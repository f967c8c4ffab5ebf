// RUN: covan-opt %s -p 'func.func(fred-raise,fred-schedule{machine=avx512 list=true})' 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: covan-opt %s -p 'func.func(fred-raise,fred-schedule{machine=neon list=true})' 2>&1 | FileCheck %s --check-prefix=NARROW

// A product of matrices and a convolution, laid out by templates of their own: rows and vectors of the register tile,
// what a workgroup computes, and how much is staged. A machine with shorter vectors has tiles of as many registers.

// WIDE: s product: lanes=16 rows=8 vectors=3 group=64 depth=96
// WIDE: s convolution: lanes=16
// NARROW: s product: lanes=4
// NARROW: s convolution: lanes=4
func.func @product(%a: tensor<64x96xf32>, %b: tensor<96x80xf32>) -> tensor<64x80xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x80xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x80xf32>) -> tensor<64x80xf32>
  %p = linalg.matmul ins(%a, %b : tensor<64x96xf32>, tensor<96x80xf32>) outs(%f : tensor<64x80xf32>) -> tensor<64x80xf32>
  return %p : tensor<64x80xf32>
}

func.func @convolution(%x: tensor<1x8x20x20xf32>, %w: tensor<16x8x3x3xf32>) -> tensor<1x16x18x18xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x16x18x18xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x16x18x18xf32>) -> tensor<1x16x18x18xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%x, %w : tensor<1x8x20x20xf32>, tensor<16x8x3x3xf32>) outs(%f : tensor<1x16x18x18xf32>) -> tensor<1x16x18x18xf32>
  return %c : tensor<1x16x18x18xf32>
}
