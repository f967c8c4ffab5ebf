// RUN: not covan-opt %s 2>&1 | FileCheck %s
// RUN: not covan-opt < %s 2>&1 | FileCheck %s --check-prefix=STDIN
// RUN: not covan-opt - < %s 2>&1 | FileCheck %s --check-prefix=STDIN

// A diagnostic shows its line, with a caret under the column, and its notes.

// CHECK:      diagnostics.mlir:15:3: error: 'func.return' op has 0 operands, but enclosing function (@f) returns 1
// CHECK-NEXT: {{^}}  return
// CHECK-NEXT: {{^}}  ^
// CHECK-NEXT: diagnostics.mlir:{{.*}}: note: see current operation: "func.return"() : () -> ()

// STDIN: <stdin>:{{[0-9]+}}:3: error: 'func.return' op

func.func @f() -> i32 {
  return
}
