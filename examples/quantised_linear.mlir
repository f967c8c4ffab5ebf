// Steps of 8 bits times a matrix of such, and the result in steps again.

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d1, d2)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

func.func @linear(%x: tensor<5x8xi8>, %w: tensor<16x8xi8>, %s: tensor<16xf32>) -> tensor<5x16xi8> {
  %c0 = arith.constant 0 : i32
  %c121 = arith.constant 121 : i32
  %scale = arith.constant 3.125000e-02 : f32
  %inverse = arith.constant 12.5 : f32
  %zero = arith.constant 3.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %e = tensor.empty() : tensor<5x16xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<5x16xi32>) -> tensor<5x16xi32>
  %sums = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%x, %w : tensor<5x8xi8>, tensor<16x8xi8>) outs(%f : tensor<5x16xi32>) {
  ^bb0(%p: i8, %q: i8, %total: i32):
    %0 = arith.extui %p : i8 to i32
    %1 = arith.subi %0, %c121 : i32
    %2 = arith.extsi %q : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %total, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<5x16xi32>
  %g = tensor.empty() : tensor<5x16xf32>
  %real = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
    ins(%sums, %s : tensor<5x16xi32>, tensor<16xf32>) outs(%g : tensor<5x16xf32>) {
  ^bb0(%p: i32, %q: f32, %out: f32):
    %0 = arith.sitofp %p : i32 to f32
    %1 = arith.mulf %0, %scale : f32
    %2 = arith.mulf %1, %q : f32
    linalg.yield %2 : f32
  } -> tensor<5x16xf32>
  %h = tensor.empty() : tensor<5x16xi8>
  %steps = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%real : tensor<5x16xf32>) outs(%h : tensor<5x16xi8>) {
  ^bb0(%p: f32, %out: i8):
    %0 = arith.mulf %p, %inverse : f32
    %1 = math.roundeven %0 : f32
    %2 = arith.addf %1, %zero : f32
    %3 = arith.cmpf olt, %2, %least : f32
    %4 = arith.select %3, %least, %2 : f32
    %5 = arith.cmpf ogt, %4, %largest : f32
    %6 = arith.select %5, %largest, %4 : f32
    %7 = arith.fptosi %6 : f32 to i32
    %8 = arith.trunci %7 : i32 to i8
    linalg.yield %8 : i8
  } -> tensor<5x16xi8>
  return %steps : tensor<5x16xi8>
}
