// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Kernels that are compiled at run time: what they do to elements, and NVRTC itself. The
/// same with the doubles and with a real device, but for what only the doubles can show.

#include "support.hpp"

#include <cohort/core/element.hpp>
#include <cohort/nccl/extra/pack_kernels.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace cohort_test;
using cohort::bf16;
using cohort::errc;
using cohort::f16;
using nccl::pack_kernels;

/// Where there is no NVRTC on a machine with a device, what needs it is skipped.
std::shared_ptr<const pack_kernels> kernels_on(const device::stream& on) {
#if defined(COHORT_FAKE_NCCL)
  return pack_kernels::of_device(on.device(), COHORT_FAKE_NVRTC);
#else
  try {
    return pack_kernels::of_device(on.device(), {});
  } catch (const cohort::error& why) {
    std::printf("skipped: %s\n", why.what());
    return nullptr;
  }
#endif
}

/// How many launches a call makes, which only the double tells.
template <class Call>
void launches(std::uint64_t wanted, Call call) {
#if defined(COHORT_FAKE_NCCL)
  const auto before = fake_gpu::calls("cuLaunchKernel");
  call();
  CHECK(fake_gpu::calls("cuLaunchKernel") - before == wanted);
#else
  static_cast<void>(wanted);
  call();
#endif
}

/// Memory of a device of which the host gives and takes the bytes.
class bytes_on_device {
 public:
  explicit bytes_on_device(std::size_t size, const device::stream& on)
      : on_(on), host_(size, on), memory_(size, on) {
    std::fill(host_.begin(), host_.end(), std::byte{0x5a});
    device::copy(on_, host_, memory_);
    finish();  // the host writes to its bytes next
  }
  template <class T>
  void put(std::size_t at, const std::vector<T>& values) {
    std::memcpy(host_.data() + at, values.data(), values.size() * sizeof(T));
    device::copy(on_, host_, memory_);
    finish();
  }
  [[nodiscard]] std::vector<std::byte> take() {
    device::pinned_vector<std::byte> seen(host_.size(), on_);
    device::copy(on_, memory_, seen);
    finish();
    return {seen.begin(), seen.end()};
  }
  [[nodiscard]] std::byte* at(std::size_t offset) { return memory_.data() + offset; }

 private:
  void finish() { REQUIRE(cudaStreamSynchronize(on_.get()) == cudaSuccess); }
  device::stream on_;
  device::pinned_vector<std::byte> host_;
  device::vector<std::byte> memory_;
};

template <class T>
constexpr ncclDataType_t type_of = nccl::detail::packed_types.front().type;
template <>
constexpr ncclDataType_t type_of<std::uint8_t> = ncclUint8;
template <>
constexpr ncclDataType_t type_of<std::int32_t> = ncclInt32;
template <>
constexpr ncclDataType_t type_of<std::uint32_t> = ncclUint32;
template <>
constexpr ncclDataType_t type_of<std::int64_t> = ncclInt64;
template <>
constexpr ncclDataType_t type_of<std::uint64_t> = ncclUint64;
template <>
constexpr ncclDataType_t type_of<f16> = ncclFloat16;
template <>
constexpr ncclDataType_t type_of<bf16> = ncclBfloat16;
template <>
constexpr ncclDataType_t type_of<float> = ncclFloat32;
template <>
constexpr ncclDataType_t type_of<double> = ncclFloat64;

template <class T>
constexpr bool is_half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

/// Any bits: also infinities, NaN, subnormal numbers and the smallest integers.
template <class T>
std::vector<T> any_values(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> made(count);
  for (T& each : made) {
    const std::uint64_t bits = random();
    if constexpr (std::is_same_v<T, float>) {
      // Half of them of a size that 16 bits hold.
      const float small =
          static_cast<float>(static_cast<std::int64_t>(bits >> 40U) - (1 << 23)) / 1024.0F;
      each = bits % 2 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 8U)) : small;
    } else if constexpr (std::is_same_v<T, double>) {
      const double small = static_cast<double>(static_cast<std::int64_t>(bits >> 20U)) / 1e9;
      each = bits % 2 == 0 ? std::bit_cast<double>(bits) : small;
    } else {
      std::memcpy(&each, &bits, sizeof each);
    }
  }
  return made;
}

template <class From, class To>
To by_the_host(From x, const pack_kernels::change& how) {
  if constexpr (std::is_integral_v<From>) {
    return how.divisor == 1 ? x : static_cast<To>(x / static_cast<From>(how.divisor));
  } else {
    using caller = std::conditional_t<(sizeof(From) < sizeof(To)), To, From>;
    using real = std::conditional_t<is_half<caller>, float, caller>;
    real value = static_cast<real>(x);
    if (how.factor != 1) value *= static_cast<real>(how.factor);
    if (how.divisor != 1) value /= static_cast<real>(how.divisor);
    if constexpr (is_half<To>) {
      return To(static_cast<float>(value));
    } else {
      return static_cast<To>(value);
    }
  }
}

/// The same number, or both no number.
template <class T>
bool same(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a == b;
  } else {
    const auto x = static_cast<double>(a);
    const auto y = static_cast<double>(b);
    return (std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y));
  }
}

/// Tensors of odd sizes at odd places to a pack, whose other bytes stay what they are.
template <class From, class To>
void gathers(pack_kernels::change how) {
  how.from = type_of<From>;
  how.to = type_of<To>;
  device::stream on;
  const auto kernels = kernels_on(on);
  if (!kernels) return;
  constexpr std::array<std::size_t, 9> sizes{1, 0, 3, 8, 17, 16384 / sizeof(From), 5000, 2, 33};
  struct place {
    std::size_t from;
    std::size_t to;
  };
  std::vector<place> places;
  std::size_t from_end = 0;
  std::size_t to_end = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Aligned to 16 bytes, or only to an element, on either side.
    from_end = (from_end + 63) / 64 * 64 + (i % 3 == 1 ? sizeof(From) : 0);
    to_end = (to_end + 63) / 64 * 64 + (i % 4 == 2 ? sizeof(To) : 0);
    places.push_back({from_end, to_end});
    from_end += sizes[i] * sizeof(From);
    to_end += sizes[i] * sizeof(To);
  }
  bytes_on_device from(from_end, on);
  bytes_on_device to(to_end, on);
  std::vector<std::byte> expected = to.take();
  std::vector<std::vector<From>> values;
  std::vector<pack_kernels::part> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    values.push_back(any_values<From>(sizes[i], static_cast<unsigned>(i)));
    if (sizes[i] != 0) from.put(places[i].from, values.back());
    const bool is_neutral = i == 4;
    parts.push_back(
        {is_neutral ? nullptr : from.at(places[i].from), to.at(places[i].to), sizes[i]});
  }
  launches(1, [&] { kernels->run(on, how, parts); });
  const std::vector<std::byte> seen = to.take();
  REQUIRE(device::state_of(on.device()).lost() == cudaSuccess);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t k = 0; k < sizes[i]; ++k) {
      const std::size_t at = places[i].to + k * sizeof(To);
      To found;
      std::memcpy(&found, seen.data() + at, sizeof found);
      std::memcpy(expected.data() + at, &found, sizeof found);
      To wanted;
      std::memcpy(&wanted, &how.neutral, sizeof wanted);
      if (i != 4) wanted = by_the_host<From, To>(values[i][k], how);
      if (!same(found, wanted)) ++wrong;
    }
  }
  CHECK(wrong == 0);
  CHECK(seen == expected);  // between the tensors nothing was written
}

template <class T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels copy, scale, divide and fill in every type of NCCL's", "", std::int8_t,
                   std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, f16,
                   bf16, float, double) {
  const gpus_of_ranks machine;
  using T = TestType;
  pack_kernels::change how;
  how.neutral = bits_of(static_cast<T>(7));
  gathers<T, T>(how);
  how.divisor = 3;
  gathers<T, T>(how);
  if constexpr (!std::is_integral_v<T>) {
    how.divisor = 1;
    how.factor = 0.3;
    gathers<T, T>(how);
  }
}

TEMPLATE_TEST_CASE("kernels cast to 16 bits and back as the host does", "", float, double) {
  const gpus_of_ranks machine;
  using T = TestType;
  for (const double factor : {1.0, 0.3, 1024.0}) {
    pack_kernels::change how;
    how.factor = factor;
    how.neutral = bits_of(f16(1.0F));
    gathers<T, f16>(how);
    gathers<T, bf16>(how);
    how.neutral = bits_of(T(1));
    gathers<f16, T>(how);
    gathers<bf16, T>(how);
  }
  pack_kernels::change mean;
  mean.divisor = 3;
  gathers<f16, T>(mean);
  gathers<bf16, T>(mean);
}

TEMPLATE_TEST_CASE("kernels that only copy keep every bit, those of a NaN too", "", f16, bf16,
                   float, double) {
  const gpus_of_ranks machine;
  using T = TestType;
  device::stream on;
  const auto kernels = kernels_on(on);
  if (!kernels) return;
  constexpr std::size_t count = 65536;
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = i << (8 * (sizeof(T) - 2));  // all signs and exponents
    bits |= sizeof(T) > 2 ? 1U : 0U;
    std::memcpy(&values[i], &bits, sizeof(T));
  }
  bytes_on_device from(count * sizeof(T), on);
  bytes_on_device to(count * sizeof(T), on);
  from.put(0, values);
  const pack_kernels::part whole{from.at(0), to.at(0), count};
  kernels->run(on, {type_of<T>, type_of<T>}, std::span(&whole, 1));
  const std::vector<std::byte> seen = to.take();
  CHECK(std::memcmp(seen.data(), values.data(), seen.size()) == 0);
}

TEST_CASE("kernels work in place") {
  const gpus_of_ranks machine;
  device::stream on;
  const auto kernels = kernels_on(on);
  if (!kernels) return;
  bytes_on_device memory(4000, on);
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.0F);
  memory.put(0, values);
  const pack_kernels::part whole{memory.at(0), memory.at(0), values.size()};
  kernels->run(on, {ncclFloat32, ncclFloat32, 2.0, 1, 0}, std::span(&whole, 1));
  const std::vector<std::byte> bytes = memory.take();
  std::vector<float> seen(values.size());
  std::memcpy(seen.data(), bytes.data(), bytes.size());
  for (float& each : values) each *= 2;
  CHECK(seen == values);
}

TEST_CASE("many tensors are a few launches, and none is no launch") {
  const gpus_of_ranks machine;
  device::stream on;
  const auto kernels = kernels_on(on);
  if (!kernels) return;
  constexpr std::size_t tensors = 1000;
  bytes_on_device from(tensors * 4, on);
  bytes_on_device to(tensors * 4, on);
  std::vector<std::int32_t> values(tensors);
  std::iota(values.begin(), values.end(), 0);
  from.put(0, values);
  std::vector<pack_kernels::part> parts;
  for (std::size_t i = 0; i < tensors; ++i) {
    parts.push_back({from.at(4 * (tensors - 1 - i)), to.at(4 * i), 1});
  }
  launches(6, [&] { kernels->run(on, {ncclInt32, ncclInt32}, parts); });  // of 168 tensors each
  const std::vector<std::byte> bytes = to.take();
  std::vector<std::int32_t> seen(tensors);
  std::memcpy(seen.data(), bytes.data(), bytes.size());
  std::reverse(values.begin(), values.end());
  CHECK(seen == values);
  const pack_kernels::part empty{from.at(0), to.at(0), 0};
  launches(0, [&] {
    kernels->run(on, {ncclInt32, ncclInt32}, {});
    kernels->run(on, {ncclInt32, ncclInt32}, std::span(&empty, 1));
  });
}

#if defined(COHORT_FAKE_NCCL)

DOUBLE_TEST_CASE("kernels are compiled once for a device and its context") {
  const gpus_of_ranks machine(2);
  const auto first = pack_kernels::of_device(0, COHORT_FAKE_NVRTC);
  CHECK(pack_kernels::of_device(0, COHORT_FAKE_NVRTC) == first);
  CHECK(fake_gpu::calls("cuModuleLoadData") == 1);
  CHECK(pack_kernels::of_device(1, COHORT_FAKE_NVRTC) != first);
  CHECK(fake_gpu::calls("cuModuleLoadData") == 2);
  device::state_of(0).context_gone(device::state_of(0).generation());
  CHECK(pack_kernels::of_device(0, COHORT_FAKE_NVRTC) != first);
  CHECK(fake_gpu::calls("cuModuleLoadData") == 3);
}

DOUBLE_TEST_CASE(
    "the double: a kernel that leaves its memory, or is misaligned, breaks the device") {
  for (const bool is_misaligned : {false, true}) {
    const gpus_of_ranks machine;
    device::stream on;
    const auto kernels = pack_kernels::of_device(on.device(), COHORT_FAKE_NVRTC);
    bytes_on_device memory(64, on);
    const pack_kernels::part bad{memory.at(is_misaligned ? 2 : 0), memory.at(0),
                                 is_misaligned ? std::size_t{2} : std::size_t{17}};
    kernels->run(on, {ncclFloat32, ncclFloat32, 2.0, 1, 0}, std::span(&bad, 1));
    CHECK(cudaStreamSynchronize(on.get()) ==
          (is_misaligned ? cudaErrorMisalignedAddress : cudaErrorIllegalAddress));
  }
}

DOUBLE_TEST_CASE(
    "a module is loaded while the device is idle, and its kernels are launched without waiting") {
  const gpus_of_ranks machine;
  device::stream busy;
  device::stream on;
  bytes_on_device memory(64, on);  // before the device is busy
  REQUIRE(cudaStreamSynchronize(on.get()) == cudaSuccess);
  const device::runtime_compiler compiler(COHORT_FAKE_NVRTC);
  const auto made = compiler.compile(nccl::detail::pack_kernels_text, "text", 10);
  fake_gpu::hold(busy.get());
  REQUIRE(cudaMemsetAsync(device::vector<int>(1, busy).data(), 0, 4, busy.get()) == cudaSuccess);
  std::optional<device::kernel_module> module;
  std::thread loads([&] { module.emplace(made.image, on.device()); });
  const auto waits = [] {
    for (int i = 0; i < 20000 && fake_gpu::blocked_calls() == 0; ++i) {
      std::this_thread::sleep_for(1ms);
    }
    return fake_gpu::blocked_calls() == 1;
  };
  CHECK(waits());
  fake_gpu::release(busy.get());
  loads.join();

  const auto function = module->find("cohort_move_u8");  // which loads it
  REQUIRE(cudaStreamSynchronize(busy.get()) == cudaSuccess);
  fake_gpu::hold(busy.get());
  REQUIRE(cudaMemsetAsync(device::vector<int>(1, busy).data(), 0, 4, busy.get()) == cudaSuccess);
  nccl::detail::pack_table table{};
  table.from[0] = table.to[0] = reinterpret_cast<std::uintptr_t>(memory.at(0));
  table.count[0] = 64;
  table.parts = table.first[1] = 1;
  module->launch(function, on, 1, 256, &table);
  CHECK(fake_gpu::blocked_calls() == 0);
  CHECK(cudaStreamSynchronize(on.get()) == cudaSuccess);
  fake_gpu::release(busy.get());
}

TEST_CASE("what NVRTC cannot do is told") {
  const gpus_of_ranks machine;
  const auto text_of = [](auto call) -> std::string {
    try {
      call();
    } catch (const cohort::error& failed) {
      CHECK(failed.code() == errc::not_supported);
      return failed.what();
    }
    return {};
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    return text.find(part) != text.npos;
  };
  CHECK(has(text_of([] { device::runtime_compiler("/nowhere/libnvrtc.so"); }),
            "/nowhere/libnvrtc.so"));
  const device::runtime_compiler compiler(COHORT_FAKE_NVRTC);
  CHECK(compiler.architectures() == std::vector<int>{10, 20});
  CHECK(compiler.compile("a", "file", 20).image == "fake nvrtc sm_20\na");
  CHECK(compiler.compile("a", "file", 15).image == "fake nvrtc compute_10\na");
  CHECK(has(text_of([&] { static_cast<void>(compiler.compile("a", "file", 9)); }),
            "does not compile for sm_9"));
}

#endif

TEST_CASE("the real NVRTC compiles the kernels, without a word") {
  int ranks = 0;
  {
    const cohort::mpi::lock calls;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  }
  if (ranks > 1) return;  // it takes seconds, and once is enough
  std::string library;
#if defined(COHORT_REAL_NVRTC)
  library = COHORT_REAL_NVRTC;
#endif
  std::optional<device::runtime_compiler> compiler;
  try {
    compiler.emplace(library);
  } catch (const cohort::error& why) {
    std::printf("skipped: %s\n", why.what());
    return;
  }
  REQUIRE(compiler->architectures().size() >= 2);
  const int oldest = compiler->architectures().front();
  const int newest = compiler->architectures().back();
  for (const int architecture : {oldest, newest, newest + 1}) {
    INFO("architecture " << architecture << " of " << compiler->name());
    const auto made =
        compiler->compile(nccl::detail::pack_kernels_text, "pack_kernels.cu", architecture);
    CHECK(made.log.empty());
    const bool is_code = architecture <= newest;
    CHECK(made.image.substr(0, 4) == (is_code ? "\x7f"
                                                "ELF"
                                              : made.image.substr(0, 4)));
    if (is_code) continue;
    CHECK(made.image.find("cohort_move_f32_bf16") != made.image.npos);
    // A table that is indexed where it was copied to would be slow.
    CHECK(made.image.find(".local") == made.image.npos);
    CHECK(made.image.find("ld.v4") != made.image.npos);
  }
  bool refused = false;
  try {
    static_cast<void>(compiler->compile("nonsense", "nonsense.cu", newest));
  } catch (const cohort::error& why) {
    refused = std::string(why.what()).find("nonsense.cu") != std::string::npos;
  }
  CHECK(refused);
}
