// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The kernels of the library, the same text that it gives to NVRTC, compiled for the host: threads
// run one after another, and each access is checked.
#include "support/fake_gpu/machine.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <string_view>

namespace fake_gpu {
namespace {

namespace kernels {

struct index {
  unsigned x = 0;
};
thread_local index threadIdx;
thread_local index blockIdx;
thread_local index blockDim;

float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }          // NOLINT
unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }     // NOLINT
double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }  // NOLINT

/// What ends a kernel.
struct fault {
  cudaError_t code;
};

/// Allocations that the kernel has touched last.
thread_local std::array<reachable, 4> seen;
thread_local std::size_t next_seen = 0;

char* touch(unsigned long long at, std::size_t bytes, std::size_t alignment) {
  if (at % alignment != 0) throw fault{cudaErrorMisalignedAddress};
  const auto holds = [&](const reachable& one) {
    return one.alias != nullptr && at >= one.begin && at + bytes <= one.begin + one.bytes;
  };
  for (const reachable& one : seen) {
    if (holds(one)) return one.alias + (at - one.begin);
  }
  const lock hold(the().mutex);
  const reachable found = find_reachable(at, working_for->device);
  if (!holds(found)) throw fault{cudaErrorIllegalAddress};
  seen[next_seen++ % seen.size()] = found;
  return found.alias + (at - found.begin);
}

template <class T>
T read(unsigned long long at) {
  T value;
  std::memcpy(&value, touch(at, sizeof(T), alignof(T)), sizeof(T));
  return value;
}
template <class T>
void write(unsigned long long at, T value) {
  std::memcpy(touch(at, sizeof(T), alignof(T)), &value, sizeof(T));
}

#define __device__
#define __global__ static
#define COHORT_PACK_TABLE(...) __VA_ARGS__
#define COHORT_PACK_CODE(...) __VA_ARGS__
#include <cohort/nccl/extra/pack_kernels.ipp>
#undef COHORT_PACK_TABLE
#undef COHORT_PACK_CODE

struct named {
  std::string_view name;
  void (*kernel)(pack_table all);
};
constexpr std::array<named, 18> all{{{"cohort_move_i8", &cohort_move_i8},
                                     {"cohort_move_u8", &cohort_move_u8},
                                     {"cohort_move_i32", &cohort_move_i32},
                                     {"cohort_move_u32", &cohort_move_u32},
                                     {"cohort_move_i64", &cohort_move_i64},
                                     {"cohort_move_u64", &cohort_move_u64},
                                     {"cohort_move_f16", &cohort_move_f16},
                                     {"cohort_move_bf16", &cohort_move_bf16},
                                     {"cohort_move_f32", &cohort_move_f32},
                                     {"cohort_move_f64", &cohort_move_f64},
                                     {"cohort_move_f32_f16", &cohort_move_f32_f16},
                                     {"cohort_move_f32_bf16", &cohort_move_f32_bf16},
                                     {"cohort_move_f64_f16", &cohort_move_f64_f16},
                                     {"cohort_move_f64_bf16", &cohort_move_f64_bf16},
                                     {"cohort_move_f16_f32", &cohort_move_f16_f32},
                                     {"cohort_move_f16_f64", &cohort_move_f16_f64},
                                     {"cohort_move_bf16_f32", &cohort_move_bf16_f32},
                                     {"cohort_move_bf16_f64", &cohort_move_bf16_f64}}};

constexpr char text[] =
#define COHORT_PACK_TABLE(...) #__VA_ARGS__ "\n"
#define COHORT_PACK_CODE(...) #__VA_ARGS__ "\n"
#undef __device__
#undef __global__
#include <cohort/nccl/extra/pack_kernels.ipp>
    ;

/// By the place in the list, so that each kernel has a function of its own with the double's type.
template <std::size_t Place>
void run_thread(const void* argument) {
  all[Place].kernel(*static_cast<const pack_table*>(argument));
}
template <std::size_t... Place>
emulated_kernel find_among(std::string_view name, std::index_sequence<Place...>) {
  emulated_kernel found = nullptr;
  static_cast<void>(((all[Place].name == name && (found = &run_thread<Place>) != nullptr) || ...));
  return found;
}

}  // namespace kernels

}  // namespace

emulated_kernel find_kernel(const char* name) {
  return kernels::find_among(name, std::make_index_sequence<kernels::all.size()>());
}

std::size_t size_of_argument() { return sizeof(kernels::pack_table); }

const char* text_of_kernels() { return kernels::text; }

cudaError_t run_kernel(emulated_kernel kernel, const emulated_shape& shape, const void* argument) {
  kernels::seen = {};
  kernels::blockDim.x = shape.threads;
  try {
    for (unsigned block = 0; block < shape.blocks; ++block) {
      kernels::blockIdx.x = block;
      for (unsigned thread = 0; thread < shape.threads; ++thread) {
        kernels::threadIdx.x = thread;
        kernel(argument);
      }
    }
  } catch (const kernels::fault& what) {
    return what.code;
  }
  return cudaSuccess;
}

}  // namespace fake_gpu
