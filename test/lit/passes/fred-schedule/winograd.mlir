// RUN: covan-opt %s -p 'func.func(fred-raise,fred-schedule{machine=avx512 list=true})' 2>&1 | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise,fred-schedule{machine=avx512 winograd=1 list=true})' 2>&1 | FileCheck %s --check-prefix=SMALL
// RUN: covan-opt %s -p 'func.func(fred-raise,fred-schedule{machine=avx512 winograd=0 list=true})' 2>&1 | FileCheck %s --check-prefix=NEVER

// A dense convolution of 3 x 3 weights, by tiles of 4 x 4 or 2 x 2 results or directly; the limit of their errors decides
// which tiles there are.

// CHECK: 0: {{[0-9.eE+-]+}} s winograd: lanes=16 size=4
// CHECK: s winograd: lanes=16 size=2
// CHECK: s convolution: lanes=16
// SMALL-NOT: size=4
// SMALL: 0: {{[0-9.eE+-]+}} s winograd: lanes=16 size=2
// NEVER-NOT: winograd
// NEVER: 0: {{[0-9.eE+-]+}} s convolution: lanes=16
func.func @convolution(%x: tensor<1x64x30x30xf32>) -> tensor<1x64x28x28xf32> {
  %w = arith.constant dense_resource<w> : tensor<64x64x3x3xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x64x28x28xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x64x28x28xf32>) -> tensor<1x64x28x28xf32>
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%x, %w : tensor<1x64x30x30xf32>, tensor<64x64x3x3xf32>) outs(%f : tensor<1x64x28x28xf32>) -> tensor<1x64x28x28xf32>
  return %c : tensor<1x64x28x28xf32>
}
