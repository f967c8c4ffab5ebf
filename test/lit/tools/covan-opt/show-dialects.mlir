// RUN: covan-opt --show-dialects | FileCheck %s

// CHECK: Available Dialects: {{.*}}builtin, {{.*}}linalg, {{.*}}prov, {{.*}}tm_tensor, {{.*}}torch, torch_c
