// RUN: %segments %s | not covan-opt -p 'func.func(fred-schedule{machine=z80})' 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: %segments %s | not covan-opt -p 'func.func(fred-schedule{machine-with=speed=3})' 2>&1 | FileCheck %s --check-prefix=WITH
// RUN: %segments %s | not covan-opt -p 'func.func(fred-schedule{machine-with=cores=many})' 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: %segments %s | not covan-opt -p 'func.func(fred-schedule{machine=avx2 override=vectors=3})' 2>&1 | FileCheck %s --check-prefix=ILLEGAL
// RUN: %segments %s | not covan-opt -p 'func.func(fred-schedule{candidate=999})' 2>&1 | FileCheck %s --check-prefix=NUMBERED
// RUN: %segments %s | not covan-opt -p 'func.func(fred-schedule{target=gameboy})' 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: %segments %s | not covan-opt -p 'func.func(fred-schedule{override=vectors})' 2>&1 | FileCheck %s --check-prefix=NOTHING

// MACHINE: there is no machine 'z80': host, avx512, avx2, neon
// WITH: a machine has no number 'speed' to change: cores, vector_bits,
// NUMBER: cores is a int, not 'many'
// ILLEGAL: vectors=3 is not legal on avx2
// NUMBERED: legal schedules, numbered from 0; 999 is none of them
// TARGET: there is no target 'gameboy' with schedules
// NOTHING: 'vectors' changes nothing: write key=value
func.func @f(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<5xf32>
    %l = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      %n = "fred.read"(%m) : (tensor<5xf32>) -> f32
      %s = arith.subf %e, %n : f32
      %p = math.exp %s : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "l", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%l) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
