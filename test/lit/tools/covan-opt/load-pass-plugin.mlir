// RUN: not covan-opt %s --load-pass-plugin=%S/Inputs/failing_passes.py -p test-raises 2>&1 | FileCheck %s --check-prefix=RAISES
// RUN: not covan-opt %s --load-pass-plugin=%S/Inputs/failing_passes.py -p 'func.func(test-refuses)' 2>&1 | FileCheck %s --check-prefix=REFUSES
// RUN: not covan-opt %s --load-pass-plugin=%S/Inputs/failing_passes.py -p 'func.func(test-breaks{count=2 names=a,b})' 2>&1 | FileCheck %s --check-prefix=BREAKS
// RUN: covan-opt --load-pass-plugin=%S/Inputs/failing_passes.py --list-passes | FileCheck %s --check-prefix=LIST
// RUN: not covan-opt --load-pass-plugin=%s --list-passes 2>&1 | FileCheck %s --check-prefix=NOT-PYTHON

// A user's pass that raises is named, without a traceback.

// RAISES-NOT: Traceback
// RAISES: load-pass-plugin.mlir:28:1: error: pass 'test-raises' raised ValueError: the user's bug

// A pass can say what it cannot do, and where.

// REFUSES:      load-pass-plugin.mlir:30:3: error: pass 'test-refuses': this return is not to our liking
// REFUSES-NEXT: {{^}}  return
// REFUSES-NEXT: {{^}}  ^

// The result of every pass is verified.

// BREAKS: error: empty block: expect at least a terminator

// LIST:      test-breaks  (on func.func)
// LIST-NEXT: Leaves IR that does not verify.
// LIST-NEXT: count: int
// LIST-NEXT: names: tuple of str

// NOT-PYTHON: covan-opt: error: cannot load '{{.*}}.mlir': not a Python file
module {
func.func @f() {
  return
}
}
