// RUN: covan-opt %s --split-input-file | FileCheck %s

// Each part is a module of its own, and so are the outputs.

// CHECK:      func.func private @f()
// CHECK:      {{^}}// -----
// CHECK:      func.func private @f(i32)
func.func private @f()
// -----
func.func private @f(i32)
