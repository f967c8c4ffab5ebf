// A libcuda that runs nothing and writes down every launch: what IREE's CUDA driver asks of a device. "Device" memory is
// host memory. A launch fills the last parameter's first four bytes with the number of the launch, so that a result shows
// which launch it came from. Lines of the log (file in COVAN_CUDA_LOG):
//   module SYMBOL PARAMETERS        attribute SYMBOL NUMBER VALUE
//   launch SYMBOL GRID_X GRID_Y GRID_Z BLOCK_X BLOCK_Y BLOCK_Z SHARED ADDRESS:FIRST_INT ...
// COVAN_CUDA_FAIL, as "cuMemAlloc:2 cuStreamSynchronize:719", makes calls return these errors (cuda.h, CUresult);
// COVAN_CUDA_MEMORY is how many bytes can be allocated from when it is set; COVAN_CUDA_CAPABILITY is 90 unless it says otherwise.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char name[256];
  int parameters;
} Function;

static int launches = 0;

static void note(const char *format, ...) {
  const char *path = getenv("COVAN_CUDA_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fclose(file);
}

static int nothing(void) { return 0; }

static int failure(const char *name) {
  const char *said = getenv("COVAN_CUDA_FAIL"), *found = said ? strstr(said, name) : NULL;
  return found && found[strlen(name)] == ':' ? atoi(found + strlen(name) + 1) : 0;
}

static size_t number(const char *name, size_t otherwise) {
  const char *said = getenv(name);
  return said ? strtoull(said, NULL, 10) : otherwise;
}

static int handle(void **out) {
  *out = malloc(16);
  return 0;
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
  Dl_info self;
  dladdr((void *)&cuGetProcAddress, &self);
  void *found = dlsym(dlopen(self.dli_fname, RTLD_NOLOAD | RTLD_LAZY), name);
  *out = found ? found : (void *)&nothing;
  return 0;
}

int cuInit(unsigned flags) { return failure("cuInit"); }
int cuStreamSynchronize(void *stream) { return failure("cuStreamSynchronize"); }
int cuEventSynchronize(void *event) { return failure("cuEventSynchronize"); }
int cuEventQuery(void *event) { return failure("cuEventQuery"); }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return failure("cuStreamWaitEvent"); }
int cuDriverGetVersion(int *out) { return *out = 12040, 0; }
int cuDeviceGetCount(int *out) { return *out = 1, 0; }
int cuDeviceGet(int *out, int ordinal) { return *out = ordinal, 0; }
int cuDeviceGetName(char *out, int length, int device) { return snprintf(out, length, "stub") < 0; }
int cuDeviceGetUuid(char *out, int device) { return memset(out, 7, 16), 0; }
int cuDeviceGetAttribute(int *out, int attribute, int device) {
  switch (attribute) {
    case 1: case 2: case 3: case 4: *out = 1024; break;  // threads of a block, in all and along each axis
    case 5: case 6: case 7: *out = 65535; break;         // blocks of a grid along each axis
    case 10: *out = 32; break;                           // threads of a warp
    case 75: *out = number("COVAN_CUDA_CAPABILITY", 90) / 10; break;
    case 76: *out = number("COVAN_CUDA_CAPABILITY", 90) % 10; break;
    case 8: *out = 49152; break;     // shared memory of a block
    case 97: *out = 232448; break;   // with opting in
    default: *out = 1;               // memory pools, too
  }
  return 0;
}
static const struct { int code; const char *name, *text; } errors[] = {
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
};
static int described(int error, const char **out, int name) {
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; ++i)
    if (errors[i].code == error) return *out = name ? errors[i].name : errors[i].text, 0;
  return *out = name ? "CUDA_ERROR_UNKNOWN" : "unknown error", 0;
}
int cuGetErrorName(int error, const char **out) { return described(error, out, 1); }
int cuGetErrorString(int error, const char **out) { return described(error, out, 0); }
int cuCtxCreate(void **out, unsigned flags, int device) { return handle(out); }
int cuDevicePrimaryCtxRetain(void **out, int device) { return handle(out); }
int cuEventCreate(void **out, unsigned flags) { return handle(out); }
int cuStreamCreate(void **out, unsigned flags) { return handle(out); }
int cuEventElapsedTime(float *out, void *a, void *b) { return *out = 0, 0; }

static int allocate(const char *by, void **out, size_t size) {
  static size_t taken = 0, limit = 0;
  if (failure(by)) return failure(by);
  size_t now = number("COVAN_CUDA_MEMORY", SIZE_MAX / 2);
  if (now != limit) limit = now, taken = 0;
  if (taken + size > limit) return 2;
  taken += size;
  *out = aligned_alloc(256, (size + 511) / 256 * 256);
  memset(*out, 0, size);
  return 0;
}
int cuMemAlloc(void **out, size_t size) { return allocate("cuMemAlloc", out, size); }
int cuMemPoolCreate(void **out, const void *properties) { return handle(out); }
int cuMemAllocFromPoolAsync(void **out, size_t size, void *pool, void *stream) { return allocate("cuMemAlloc", out, size); }
int cuMemAllocManaged(void **out, size_t size, unsigned flags) { return allocate("cuMemAlloc", out, size); }
int cuMemHostAlloc(void **out, size_t size, unsigned flags) { return allocate("cuMemHostAlloc", out, size); }
int cuMemHostGetDevicePointer(void **out, void *host, unsigned flags) { return *out = host, 0; }
int cuMemcpyAsync(void *to, void *from, size_t size, void *stream) { return memmove(to, from, size), 0; }
int cuMemcpyHtoDAsync(void *to, void *from, size_t size, void *stream) { return memmove(to, from, size), 0; }
int cuMemsetD8Async(void *to, unsigned char value, size_t n, void *stream) { return memset(to, value, n), 0; }
int cuMemsetD32Async(uint32_t *to, uint32_t value, size_t n, void *stream) {
  for (size_t i = 0; i < n; ++i) to[i] = value;
  return 0;
}
int cuLaunchHostFunc(void *stream, void (*call)(void *), void *data) { return call(data), 0; }

int cuModuleLoadDataEx(void **out, const void *image, unsigned n, void *options, void *values) {
  if (failure("cuModuleLoadDataEx")) return failure("cuModuleLoadDataEx");
  *out = strdup(image);
  return 0;
}
int cuModuleGetFunction(Function **out, char *image, const char *name) {
  Function *made = calloc(1, sizeof *made);
  snprintf(made->name, sizeof made->name, "%s", name);
  const char *start = strstr(image, ".entry"), *end = start ? strchr(start, ')') : NULL;
  for (const char *at = start; at && (at = strstr(at, ".param")) && at < end; ++at) made->parameters++;
  note("module %s %d\n", name, made->parameters);
  *out = made;
  return 0;
}
int cuFuncSetAttribute(Function *function, int attribute, int value) {
  note("attribute %s %d %d\n", function->name, attribute, value);
  return 0;
}
int cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  if (failure("cuLaunchKernel")) return failure("cuLaunchKernel");
  note("launch %s %u %u %u %u %u %u %u", function->name, gx, gy, gz, bx, by, bz, shared);
  for (int i = 0; i < function->parameters; ++i) {
    int32_t *pointer = *(int32_t **)parameters[i];
    note(" %p:%d", (void *)pointer, *pointer);
  }
  note("\n");
  **(int32_t **)parameters[function->parameters - 1] = 1000 + launches++;
  return 0;
}
