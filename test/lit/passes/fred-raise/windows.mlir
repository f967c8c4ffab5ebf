// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise,fred-print)' 2>&1 | FileCheck %s --check-prefix=TEXT

// A convolution with a stride; the padding before it is in the positions, the bias is added behind it.

// CHECK-LABEL: func.func @strided(
// CHECK-NOT: tensor.pad
// CHECK-NOT: linalg.
// CHECK: "fred.chain"
// CHECK: "fred.window"
// TEXT-LABEL: strided: chain
// TEXT: v0[i, m, o]: f32 = add[j, n, p] (x1[j, 2m + n - 1, 2o + p - 1 else 0] * x2)
// TEXT-NEXT: v1[i, m, o]: f32 = v0 + x0
func.func @strided(%x: tensor<1x4x9x9xf32>, %w: tensor<8x4x3x3xf32>, %b: tensor<8xf32>) -> tensor<1x8x5x5xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%p0: index, %p1: index, %p2: index, %p3: index):
    tensor.yield %zero : f32
  } : tensor<1x4x9x9xf32> to tensor<1x4x11x11xf32>
  %e = tensor.empty() : tensor<1x8x5x5xf32>
  %o = linalg.broadcast ins(%b : tensor<8xf32>) outs(%e : tensor<1x8x5x5xf32>) dimensions = [0, 2, 3]
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>} ins(%p, %w : tensor<1x4x11x11xf32>, tensor<8x4x3x3xf32>) outs(%o : tensor<1x8x5x5xf32>) -> tensor<1x8x5x5xf32>
  return %y : tensor<1x8x5x5xf32>
}

// Along one dimension, dilated; padding that is not zero stays a number outside.

// TEXT-LABEL: dilated: chain
// TEXT: v0[i, n, l]: f32 = add[j, m] (x0[i, j, l + 2m - 2 else 1] * x1)
func.func @dilated(%x: tensor<2x4x9xf32>, %w: tensor<8x4x3xf32>) -> tensor<2x8x9xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %p = tensor.pad %x low[0, 0, 2] high[0, 0, 2] {
  ^bb0(%p0: index, %p1: index, %p2: index):
    tensor.yield %one : f32
  } : tensor<2x4x9xf32> to tensor<2x4x13xf32>
  %o_e = tensor.empty() : tensor<2x8x9xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<2x8x9xf32>) -> tensor<2x8x9xf32>
  %y = linalg.conv_1d_ncw_fcw {dilations = dense<2> : vector<1xi64>, strides = dense<1> : vector<1xi64>} ins(%p, %w : tensor<2x4x13xf32>, tensor<8x4x3xf32>) outs(%o : tensor<2x8x9xf32>) -> tensor<2x8x9xf32>
  return %y : tensor<2x8x9xf32>
}

// In groups: the reshape before it is one of the input, and nothing is filled in.

// CHECK-LABEL: func.func @grouped(
// CHECK-NOT: tensor.pad
// CHECK: %[[X:.*]] = tensor.expand_shape %{{.*}} : tensor<2x8x7x7xf32> into tensor<2x4x2x7x7xf32>
// CHECK: "fred.chain"
// TEXT-LABEL: grouped: chain
// TEXT: = add[{{.*}}] (x0[{{.}}, {{.}}, {{.}}, {{.}} + {{.}} - 1, {{.}} + {{.}} - 1 else 0] * x1)
func.func @grouped(%x: tensor<2x8x7x7xf32>, %w: tensor<4x3x2x3x3xf32>) -> tensor<2x4x3x7x7xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%p0: index, %p1: index, %p2: index, %p3: index):
    tensor.yield %zero : f32
  } : tensor<2x8x7x7xf32> to tensor<2x8x9x9xf32>
  %g = tensor.expand_shape %p [[0], [1, 2], [3], [4]] output_shape [2, 4, 2, 9, 9] : tensor<2x8x9x9xf32> into tensor<2x4x2x9x9xf32>
  %o_e = tensor.empty() : tensor<2x4x3x7x7xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<2x4x3x7x7xf32>) -> tensor<2x4x3x7x7xf32>
  %y = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%g, %w : tensor<2x4x2x9x9xf32>, tensor<4x3x2x3x3xf32>) outs(%o : tensor<2x4x3x7x7xf32>) -> tensor<2x4x3x7x7xf32>
  return %y : tensor<2x4x3x7x7xf32>
}

// Each channel by itself.

// TEXT-LABEL: depthwise: chain
// TEXT: x0[i, j, k]: f32
// TEXT: x1[i, m, o]: f32
// TEXT: v0[i, l, n]: f32 = add[m, o] (x0[i, l + m, n + o else 0] * x1)
func.func @depthwise(%x: tensor<1x8x9x9xf32>, %w: tensor<8x3x3xf32>) -> tensor<1x8x7x7xf32> {
  %zero = arith.constant 0.0 : f32
  %o_e = tensor.empty() : tensor<1x8x7x7xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  %y = linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%x, %w : tensor<1x8x9x9xf32>, tensor<8x3x3xf32>) outs(%o : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  return %y : tensor<1x8x7x7xf32>
}

// One element a channel: the positions of the image are those of the result, and one axis. It is a product.

// TEXT-LABEL: pointwise: chain
// TEXT: v0[l, j]: f32 = add[i] (x0 * x1)
func.func @pointwise(%x: tensor<1x4x8x8xf32>, %w: tensor<6x4x1x1xf32>) -> tensor<1x6x8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %o_e = tensor.empty() : tensor<1x6x8x8xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<1x6x8x8xf32>) -> tensor<1x6x8x8xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%x, %w : tensor<1x4x8x8xf32>, tensor<6x4x1x1xf32>) outs(%o : tensor<1x6x8x8xf32>) -> tensor<1x6x8x8xf32>
  return %y : tensor<1x6x8x8xf32>
}

// The largest of each window; nothing is greater than what is outside.

// TEXT-LABEL: pooled: chain
// TEXT: v0[i, l, n]: f32 = max[m, o] (x0[i, 2l + m - 1, 2n + o - 1 else -inf])
func.func @pooled(%x: tensor<1x4x9x9xf32>) -> tensor<1x4x5x5xf32> {
  %least = arith.constant 0xFF800000 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%p0: index, %p1: index, %p2: index, %p3: index):
    tensor.yield %least : f32
  } : tensor<1x4x9x9xf32> to tensor<1x4x11x11xf32>
  %o_e = tensor.empty() : tensor<1x4x5x5xf32>
  %o = linalg.fill ins(%least : f32) outs(%o_e : tensor<1x4x5x5xf32>) -> tensor<1x4x5x5xf32>
  %k = tensor.empty() : tensor<3x3xf32>
  %y = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>} ins(%p, %k : tensor<1x4x11x11xf32>, tensor<3x3xf32>) outs(%o : tensor<1x4x5x5xf32>) -> tensor<1x4x5x5xf32>
  return %y : tensor<1x4x5x5xf32>
}

// What normalises and cuts off the result is computed with it.

// CHECK-LABEL: func.func @epilogue(
// CHECK: "fred.chain"
// CHECK-NOT: linalg.
// TEXT-LABEL: epilogue: chain
// TEXT: = add[{{.*}}] (x{{.}}[{{.*}}] * x{{.}})
// TEXT-NEXT: = v0 * x
// TEXT-NEXT: = v1 + x
// TEXT-NEXT: = max
func.func @epilogue(%x: tensor<1x4x9x9xf32>, %w: tensor<8x4x3x3xf32>, %s: tensor<8x1x1xf32>, %b: tensor<8x1x1xf32>) -> tensor<1x8x7x7xf32> {
  %zero = arith.constant 0.0 : f32
  %o_e = tensor.empty() : tensor<1x8x7x7xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%x, %w : tensor<1x4x9x9xf32>, tensor<8x4x3x3xf32>) outs(%o : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  %scaled = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c, 0, 0)>, affine_map<(n, c, h, w) -> (n, c, h, w)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%y, %s : tensor<1x8x7x7xf32>, tensor<8x1x1xf32>) outs(%o_e : tensor<1x8x7x7xf32>) {
  ^bb0(%in: f32, %with: f32, %out: f32):
    %v = arith.mulf %in, %with : f32
    linalg.yield %v : f32
  } -> tensor<1x8x7x7xf32>
  %moved = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c, 0, 0)>, affine_map<(n, c, h, w) -> (n, c, h, w)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%scaled, %b : tensor<1x8x7x7xf32>, tensor<8x1x1xf32>) outs(%o_e : tensor<1x8x7x7xf32>) {
  ^bb0(%in: f32, %with: f32, %out: f32):
    %v = arith.addf %in, %with : f32
    linalg.yield %v : f32
  } -> tensor<1x8x7x7xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (n, c, h, w)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%moved : tensor<1x8x7x7xf32>) outs(%o_e : tensor<1x8x7x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.maximumf %in, %zero : f32
    linalg.yield %v : f32
  } -> tensor<1x8x7x7xf32>
  return %r : tensor<1x8x7x7xf32>
}

// A sum over neighbours that is written out.

// TEXT-LABEL: neighbours: chain
// TEXT: = add[{{.}}] (x0[{{.}} + {{.}} else 0] * x1)
func.func @neighbours(%x: tensor<9xf32>, %w: tensor<3xf32>) -> tensor<7xf32> {
  %zero = arith.constant 0.0 : f32
  %o_e = tensor.empty() : tensor<7xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<7xf32>) -> tensor<7xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(h, r) -> (h + r)>, affine_map<(h, r) -> (r)>, affine_map<(h, r) -> (h)>], iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<9xf32>, tensor<3xf32>) outs(%o : tensor<7xf32>) {
  ^bb0(%in: f32, %with: f32, %out: f32):
    %p = arith.mulf %in, %with : f32
    %s = arith.addf %out, %p : f32
    linalg.yield %s : f32
  } -> tensor<7xf32>
  return %y : tensor<7xf32>
}

// One behind the other: each is a chain, and the padding between them is in the positions of the second.

// CHECK-LABEL: func.func @twice(
// CHECK-COUNT-2: "fred.chain"
// CHECK-NOT: tensor.pad
// CHECK: return
func.func @twice(%x: tensor<1x4x9x9xf32>, %w: tensor<4x4x3x3xf32>) -> tensor<1x4x7x7xf32> {
  %zero = arith.constant 0.0 : f32
  %o_e = tensor.empty() : tensor<1x4x7x7xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<1x4x7x7xf32>) -> tensor<1x4x7x7xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%x, %w : tensor<1x4x9x9xf32>, tensor<4x4x3x3xf32>) outs(%o : tensor<1x4x7x7xf32>) -> tensor<1x4x7x7xf32>
  %p = tensor.pad %y low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%p0: index, %p1: index, %p2: index, %p3: index):
    tensor.yield %zero : f32
  } : tensor<1x4x7x7xf32> to tensor<1x4x9x9xf32>
  %z = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%p, %w : tensor<1x4x9x9xf32>, tensor<4x4x3x3xf32>) outs(%o : tensor<1x4x7x7xf32>) -> tensor<1x4x7x7xf32>
  return %z : tensor<1x4x7x7xf32>
}

// Padding by what is computed at run time stays where it is.

// CHECK-LABEL: func.func @filled(
// CHECK: %[[P:.*]] = tensor.pad
// CHECK: "fred.chain"
func.func @filled(%x: tensor<2x4x9xf32>, %w: tensor<8x4x3xf32>, %v: f32) -> tensor<2x8x9xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1] high[0, 0, 1] {
  ^bb0(%p0: index, %p1: index, %p2: index):
    tensor.yield %v : f32
  } : tensor<2x4x9xf32> to tensor<2x4x11xf32>
  %o_e = tensor.empty() : tensor<2x8x9xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<2x8x9xf32>) -> tensor<2x8x9xf32>
  %y = linalg.conv_1d_ncw_fcw {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>} ins(%p, %w : tensor<2x4x11xf32>, tensor<8x4x3xf32>) outs(%o : tensor<2x8x9xf32>) -> tensor<2x8x9xf32>
  return %y : tensor<2x8x9xf32>
}

// Windows that lie side by side: narrow ones are read as all others, wide ones along axes of their own, as a product does.

// TEXT-LABEL: narrow_patches: chain
// TEXT: v0[p, l, n]: f32 = add[i, m, o] (x0[i, 2l + m, 2n + o else 0] * x1)
func.func @narrow_patches(%x: tensor<1x4x6x6xf32>, %w: tensor<8x4x2x2xf32>) -> tensor<1x8x3x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8x3x3xf32>
  %o = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8x3x3xf32>) -> tensor<1x8x3x3xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>} ins(%x, %w : tensor<1x4x6x6xf32>, tensor<8x4x2x2xf32>) outs(%o : tensor<1x8x3x3xf32>) -> tensor<1x8x3x3xf32>
  return %y : tensor<1x8x3x3xf32>
}

// TEXT-LABEL: {{^}}patches: chain
// TEXT: x0[i, j, k, l, m]: f32
// TEXT: v0[n, j, l]: f32 = add[i, k, m] (x0 * x1)
func.func @patches(%x: tensor<1x4x12x12xf32>, %w: tensor<8x4x4x4xf32>) -> tensor<1x8x3x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8x3x3xf32>
  %o = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8x3x3xf32>) -> tensor<1x8x3x3xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<4> : vector<2xi64>} ins(%x, %w : tensor<1x4x12x12xf32>, tensor<8x4x4x4xf32>) outs(%o : tensor<1x8x3x3xf32>) -> tensor<1x8x3x3xf32>
  return %y : tensor<1x8x3x3xf32>
}

// A transposition before it that leaves rows and columns in their places is in the positions; one that moves them is not:
// kernels want those last.

// CHECK-LABEL: func.func @transposed(
// CHECK-NOT: linalg.transpose
// CHECK: "fred.chain"
// TEXT-LABEL: transposed: chain
// TEXT: v0[j, q, m, o]: f32 = add[i, n, p] (x0[i, j, m + n - 1, o + p - 1 else 0] * x1)
func.func @transposed(%x: tensor<5x4x7x7xf32>, %w: tensor<6x5x7x7xf32>) -> tensor<4x6x3x3xf32> {
  %zero = arith.constant 0.0 : f32
  %t_e = tensor.empty() : tensor<4x5x7x7xf32>
  %t = linalg.transpose ins(%x : tensor<5x4x7x7xf32>) outs(%t_e : tensor<4x5x7x7xf32>) permutation = [1, 0, 2, 3]
  %p = tensor.pad %t low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%p0: index, %p1: index, %p2: index, %p3: index):
    tensor.yield %zero : f32
  } : tensor<4x5x7x7xf32> to tensor<4x5x9x9xf32>
  %o_e = tensor.empty() : tensor<4x6x3x3xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<4x6x3x3xf32>) -> tensor<4x6x3x3xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%p, %w : tensor<4x5x9x9xf32>, tensor<6x5x7x7xf32>) outs(%o : tensor<4x6x3x3xf32>) -> tensor<4x6x3x3xf32>
  return %y : tensor<4x6x3x3xf32>
}

// CHECK-LABEL: func.func @turned(
// CHECK: linalg.transpose
// CHECK: "fred.chain"
func.func @turned(%x: tensor<2x9x9x4xf32>, %w: tensor<6x4x3x3xf32>) -> tensor<2x6x7x7xf32> {
  %zero = arith.constant 0.0 : f32
  %t_e = tensor.empty() : tensor<2x4x9x9xf32>
  %t = linalg.transpose ins(%x : tensor<2x9x9x4xf32>) outs(%t_e : tensor<2x4x9x9xf32>) permutation = [0, 3, 1, 2]
  %o_e = tensor.empty() : tensor<2x6x7x7xf32>
  %o = linalg.fill ins(%zero : f32) outs(%o_e : tensor<2x6x7x7xf32>) -> tensor<2x6x7x7xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%t, %w : tensor<2x4x9x9xf32>, tensor<6x4x3x3xf32>) outs(%o : tensor<2x6x7x7xf32>) -> tensor<2x6x7x7xf32>
  return %y : tensor<2x6x7x7xf32>
}
