// RUN: not covan-opt %s -p 'func.func(fred-raise{target=abacus})' 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not covan-opt %s -p 'fred-kernels' 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not covan-opt %s -p 'fred-kernels{target=cpu fuse=sometimes}' 2>&1 | FileCheck %s --check-prefix=FUSE

// TARGET: error: pass 'fred-raise': unknown target 'abacus'
// NONE: pass 'fred-kernels': which kernels? Write target=cpu
// FUSE: pass 'fred-kernels': fuse is 'sometimes': write pays or always
func.func @main() {
  return
}
