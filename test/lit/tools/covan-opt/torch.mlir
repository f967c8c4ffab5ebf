// RUN: covan-opt %s | FileCheck %s
// RUN: covan-opt %s -p torch-func-backend-type-conversion | covan-opt | FileCheck %s --check-prefix=CONVERTED

// The torch dialect is there, and so is what its lowering makes.

// CHECK: torch.aten.relu
// CONVERTED: torch_c.from_builtin_tensor
func.func @f(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %0 = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}
