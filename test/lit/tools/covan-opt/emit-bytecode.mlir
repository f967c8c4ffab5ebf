// RUN: covan-opt %s --emit-bytecode -o %t && covan-opt %t | FileCheck %s
// RUN: covan-opt %s --emit-bytecode | covan-opt | FileCheck %s

// Bytecode is recognised, in a file and on standard input.

// CHECK: func.func private @f()
func.func private @f()
