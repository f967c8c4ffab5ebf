// RUN: covan-opt %s -o %t && FileCheck %s --input-file %t
// RUN: not covan-opt %s -p cse -p no-such-pass -o %t && FileCheck %s --input-file %t

// -o names the output. A run that fails leaves what was there.

// CHECK: func.func private @f()
func.func private @f()
