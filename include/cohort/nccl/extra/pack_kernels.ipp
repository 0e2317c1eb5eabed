// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
/// \file
/// The kernels that fill and empty packs: a text for NVRTC, and code for the tests' double of CUDA.

// Who includes this defines what becomes of its two parts. pack_kernels.hpp makes them a text; the
// double compiles them for the host. So there is no directive, no include and no macro in them.
//
// COHORT_PACK_TABLE: the only argument of all kernels.
//
// COHORT_PACK_CODE: the kernels. They touch memory through the functions `read` and `write` only,
// which, like CUDA's conversions between a number and its bits, come from who compiles them.
// Conversions to and from 16 bits are those of core/element.hpp, so results do not depend on who
// converts.

// clang-format off
COHORT_PACK_TABLE(
struct pack_table {
  unsigned long long from[168];  // 0: there is nothing to read, `neutral` is written
  unsigned long long to[168];
  double factor;
  long long divisor;
  unsigned long long neutral;    // the bits of an element
  unsigned step;                 // 0: none, 1: times factor, 2: by divisor
  unsigned parts;
  unsigned count[168];           // elements
  unsigned first[169];           // block of the part; that of the end behind the last one
};
)

COHORT_PACK_CODE(

struct half16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };

template <class T, unsigned N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) lanes { T at[N]; };

// All bits where a < b; of magnitudes, which have no highest bit.
__device__ inline unsigned if_less(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<int>(a - b) >> 31);
}
// Rounds to the nearest, ties to even.
__device__ inline unsigned shifted(unsigned magnitude, unsigned shift) {
  return (magnitude + ((1U << (shift - 1)) - 1) + ((magnitude >> shift) & 1U)) >> shift;
}

__device__ inline float widen(half16 x) {
  const unsigned sign = static_cast<unsigned>(x.bits & 0x8000U) << 16;
  const unsigned magnitude = static_cast<unsigned>(x.bits & 0x7FFFU) << 13;
  const unsigned is_small = if_less(magnitude, 0x00800000U);
  const unsigned rebiased = magnitude + 0x38000000U + (is_small & 0x00800000U);
  const float finite = __uint_as_float(rebiased) - __uint_as_float(is_small & 0x38800000U);
  const unsigned above = if_less(0x0F7FFFFFU, magnitude) & 0x7F800000U;
  return __uint_as_float(sign | __float_as_uint(finite) | above);
}
__device__ inline float widen(bfloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline int widen(signed char x) { return x; }
__device__ inline unsigned widen(unsigned char x) { return x; }
__device__ inline int widen(int x) { return x; }
__device__ inline unsigned widen(unsigned x) { return x; }
__device__ inline long long widen(long long x) { return x; }
__device__ inline unsigned long long widen(unsigned long long x) { return x; }

template <class T, class From>
__device__ inline T narrow(From x, T*) { return static_cast<T>(x); }
template <class From>
__device__ inline half16 narrow(From x, half16*) {
  const unsigned word = __float_as_uint(static_cast<float>(x));
  const unsigned sign = (word >> 16) & 0x8000U;
  const unsigned magnitude = word & 0x7FFFFFFFU;
  const unsigned is_small = if_less(magnitude, 0x38800000U);
  const unsigned is_large = if_less(0x477FFFFFU, magnitude);
  const unsigned normal = shifted(magnitude - 0x38000000U, 13);
  const float rounded = __uint_as_float(magnitude & is_small) + 0.5F;
  const unsigned small = __float_as_uint(rounded) - 0x3F000000U;
  const unsigned large = 0x7C00U | (if_less(0x7F800000U, magnitude) & 0x0200U);
  const unsigned bits =
      sign | small | (large & is_large) | (normal & ~(is_small | is_large));
  return half16{static_cast<unsigned short>(bits)};
}
template <class From>
__device__ inline bfloat16 narrow(From x, bfloat16*) {
  const unsigned word = __float_as_uint(static_cast<float>(x));
  const unsigned is_nan = if_less(0x7F800000U, word & 0x7FFFFFFFU);
  const unsigned nan = (word >> 16) | 0x0040U;
  return bfloat16{static_cast<unsigned short>((nan & is_nan) | (shifted(word, 16) & ~is_nan))};
}

template <class T>
__device__ inline T from_bits(unsigned long long bits, T*) { return static_cast<T>(bits); }
__device__ inline half16 from_bits(unsigned long long bits, half16*) {
  return half16{static_cast<unsigned short>(bits)};
}
__device__ inline bfloat16 from_bits(unsigned long long bits, bfloat16*) {
  return bfloat16{static_cast<unsigned short>(bits)};
}
__device__ inline float from_bits(unsigned long long bits, float*) {
  return __uint_as_float(static_cast<unsigned>(bits));
}
__device__ inline double from_bits(unsigned long long bits, double*) {
  return __longlong_as_double(static_cast<long long>(bits));
}

// The type in which numbers are scaled and divided: that of the memory of the caller, but float
// for what has 16 bits, and 32 bits at least for a number of ranks.
template <class From, class To>
struct computed {
  static constexpr bool widens = sizeof(From) < sizeof(To);
  template <bool, class A, class B> struct choice { using type = A; };
  template <class A, class B> struct choice<false, A, B> { using type = B; };
  using caller = typename choice<widens, To, From>::type;
  using type = decltype(widen(caller()));
};

// Without a factor or a divisor: what is only copied keeps its bits, those of a NaN too.
template <class T>
__device__ inline T as(T x, T*) { return x; }
template <class From, class To>
__device__ inline To as(From x, To* type) { return narrow(widen(x), type); }

template <class From, class To>
__device__ inline To changed(From x, const pack_table& all) {
  if (all.step == 0) return as(x, static_cast<To*>(nullptr));
  using real = typename computed<From, To>::type;
  real value = static_cast<real>(widen(x));
  if (all.step == 1) value = static_cast<real>(value * static_cast<real>(all.factor));
  if (all.step == 2) value = static_cast<real>(value / static_cast<real>(all.divisor));
  return narrow(value, static_cast<To*>(nullptr));
}

// 1. A block works on 16 KiB of what is read of one part, which it looks up.
// 2. Its threads take what makes 16 bytes at a time, if both sides are aligned.
// 3. What is left goes element by element.
template <class From, class To>
__device__ inline void move(const pack_table& all) {
  constexpr unsigned width = 16 / sizeof(From);
  constexpr unsigned per_block = 16384 / sizeof(From);
  unsigned part = 0;
  for (unsigned end = all.parts; end - part > 1;) {
    const unsigned middle = part + (end - part) / 2;
    if (all.first[middle] <= blockIdx.x) {
      part = middle;
    } else {
      end = middle;
    }
  }
  const unsigned begin = (blockIdx.x - all.first[part]) * per_block;
  const unsigned left = all.count[part] - begin;
  const unsigned mine = left < per_block ? left : per_block;
  const unsigned long long from =
      all.from[part] == 0 ? 0 : all.from[part] + begin * static_cast<unsigned long long>(sizeof(From));
  const unsigned long long to = all.to[part] + begin * static_cast<unsigned long long>(sizeof(To));
  const bool aligned = from % alignof(lanes<From, width>) == 0 && to % alignof(lanes<To, width>) == 0;
  const unsigned whole = aligned ? mine / width * width : 0;
  const To neutral = from_bits(all.neutral, static_cast<To*>(nullptr));
  for (unsigned i = threadIdx.x * width; i < whole; i += blockDim.x * width) {
    lanes<To, width> out;
    if (from == 0) {
      for (unsigned k = 0; k < width; ++k) out.at[k] = neutral;
    } else {
      const lanes<From, width> in = read<lanes<From, width>>(from + i * sizeof(From));
      for (unsigned k = 0; k < width; ++k) out.at[k] = changed<From, To>(in.at[k], all);
    }
    write<lanes<To, width>>(to + i * sizeof(To), out);
  }
  for (unsigned i = whole + threadIdx.x; i < mine; i += blockDim.x) {
    const To value = from == 0 ? neutral
                               : changed<From, To>(read<From>(from + i * sizeof(From)), all);
    write<To>(to + i * sizeof(To), value);
  }
}

extern "C" {
__global__ void cohort_move_i8(const pack_table all) { move<signed char, signed char>(all); }
__global__ void cohort_move_u8(const pack_table all) { move<unsigned char, unsigned char>(all); }
__global__ void cohort_move_i32(const pack_table all) { move<int, int>(all); }
__global__ void cohort_move_u32(const pack_table all) { move<unsigned, unsigned>(all); }
__global__ void cohort_move_i64(const pack_table all) { move<long long, long long>(all); }
__global__ void cohort_move_u64(const pack_table all) {
  move<unsigned long long, unsigned long long>(all);
}
__global__ void cohort_move_f16(const pack_table all) { move<half16, half16>(all); }
__global__ void cohort_move_bf16(const pack_table all) { move<bfloat16, bfloat16>(all); }
__global__ void cohort_move_f32(const pack_table all) { move<float, float>(all); }
__global__ void cohort_move_f64(const pack_table all) { move<double, double>(all); }
__global__ void cohort_move_f32_f16(const pack_table all) { move<float, half16>(all); }
__global__ void cohort_move_f32_bf16(const pack_table all) { move<float, bfloat16>(all); }
__global__ void cohort_move_f64_f16(const pack_table all) { move<double, half16>(all); }
__global__ void cohort_move_f64_bf16(const pack_table all) { move<double, bfloat16>(all); }
__global__ void cohort_move_f16_f32(const pack_table all) { move<half16, float>(all); }
__global__ void cohort_move_f16_f64(const pack_table all) { move<half16, double>(all); }
__global__ void cohort_move_bf16_f32(const pack_table all) { move<bfloat16, float>(all); }
__global__ void cohort_move_bf16_f64(const pack_table all) { move<bfloat16, double>(all); }
}
)
// clang-format on
