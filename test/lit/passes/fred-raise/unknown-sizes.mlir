// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// What is divided by is the size of an axis: the mean is part of the chain.

// CHECK-LABEL: func.func @deviations
func.func @deviations(%x: tensor<5x?xf32>) -> tensor<5x?xf32> {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %length = tensor.dim %x, %c1 : tensor<5x?xf32>
  %number = arith.index_cast %length : index to i64
  %rows = tensor.empty() : tensor<5xf32>
  %start = linalg.fill ins(%zero : f32) outs(%rows : tensor<5xf32>) -> tensor<5xf32>
  // CHECK: "fred.chain"
  // CHECK: "fred.reduce"
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<5x?xf32>) outs(%start : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<5xf32>
  // CHECK: "fred.extent"() {axis = "j"}
  // CHECK-NEXT: arith.index_cast
  // CHECK-NEXT: arith.sitofp
  // CHECK-NEXT: arith.divf
  %mean = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%sum : tensor<5xf32>) outs(%rows : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.sitofp %number : i64 to f32
    %m = arith.divf %a, %n : f32
    linalg.yield %m : f32
  } -> tensor<5xf32>
  %all = tensor.empty(%length) : tensor<5x?xf32>
  // CHECK: arith.subf
  // CHECK-NOT: linalg.generic
  %result = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %mean : tensor<5x?xf32>, tensor<5xf32>) outs(%all : tensor<5x?xf32>) {
  ^bb0(%a: f32, %m: f32, %b: f32):
    %d = arith.subf %a, %m : f32
    linalg.yield %d : f32
  } -> tensor<5x?xf32>
  // CHECK: return
  return %result : tensor<5x?xf32>
}

// A reshape that splits one dimension is a view, whatever the other's size: their names tell which is which.

// CHECK-LABEL: func.func @reshaped
func.func @reshaped(%x: tensor<6x?xf32>) -> tensor<2x3x?xf32> {
  %c1 = arith.constant 1 : index
  %two = arith.constant 2 : i64
  %three = arith.constant 3 : i64
  %least = arith.constant 0xFF800000 : f32
  %length = tensor.dim %x, %c1 : tensor<6x?xf32>
  %number = arith.index_cast %length : index to i64
  %rows = tensor.empty() : tensor<2x3xf32>
  %start = linalg.fill ins(%least : f32) outs(%rows : tensor<2x3xf32>) -> tensor<2x3xf32>
  %empty = tensor.empty(%length) : tensor<6x?xf32>
  // CHECK: "fred.chain"
  // CHECK: math.exp
  // CHECK: "fred.reduce"
  %e = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<6x?xf32>) outs(%empty : tensor<6x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %p = math.exp %a : f32
    linalg.yield %p : f32
  } -> tensor<6x?xf32>
  %shape = tensor.from_elements %two, %three, %number : tensor<3xi64>
  %split = tensor.reshape %e(%shape) : (tensor<6x?xf32>, tensor<3xi64>) -> tensor<2x3x?xf32>
  // CHECK-NOT: tensor.reshape
  %most = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (h, i)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%split : tensor<2x3x?xf32>) outs(%start : tensor<2x3xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.maximumf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<2x3xf32>
  %all = tensor.empty(%length) : tensor<2x3x?xf32>
  // CHECK: arith.divf
  // CHECK-NOT: linalg.generic
  %result = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (h, i)>, affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%split, %most : tensor<2x3x?xf32>, tensor<2x3xf32>) outs(%all : tensor<2x3x?xf32>) {
  ^bb0(%a: f32, %m: f32, %b: f32):
    %d = arith.divf %a, %m : f32
    linalg.yield %d : f32
  } -> tensor<2x3x?xf32>
  // CHECK: return
  return %result : tensor<2x3x?xf32>
}
