// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::pack_kernels`: gathers and scatters many tensors in one launch, with scale and
/// cast.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/device/runtime_compiler.hpp>
#include <cohort/nccl/backend/extras.hpp>
#include <cohort/nccl/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

namespace cohort::nccl {

namespace detail {

#define COHORT_PACK_TABLE(...) __VA_ARGS__
#define COHORT_PACK_CODE(...)
#include <cohort/nccl/extra/pack_kernels.ipp>
#undef COHORT_PACK_TABLE
#undef COHORT_PACK_CODE

/// What NVRTC is given.
inline constexpr char pack_kernels_text[] =
    "template <class T> __device__ inline T read(unsigned long long at) {"
    " return *reinterpret_cast<const T*>(at); }\n"
    "template <class T> __device__ inline void write(unsigned long long at, T value) {"
    " *reinterpret_cast<T*>(at) = value; }\n"
#define COHORT_PACK_TABLE(...) #__VA_ARGS__ "\n"
#define COHORT_PACK_CODE(...) #__VA_ARGS__ "\n"
#include <cohort/nccl/extra/pack_kernels.ipp>
    ;
#undef COHORT_PACK_TABLE
#undef COHORT_PACK_CODE

// A kernel's arguments are limited to 4 KiB where nothing is known of driver and device.
static_assert(sizeof(pack_table) <= 4096);

}  // namespace detail

/// Compiled and loaded for one device.
class pack_kernels final : public move_kernels {
 public:
  /// Those of the process, which are made by the first call. Takes up to a few seconds then, and
  /// may wait for whatever the device does: never call it where a loop runs. `nvrtc` as for
  /// device::runtime_compiler. Throws std::system_error, error(errc::not_supported) with the
  /// reason.
  [[nodiscard]] static std::shared_ptr<const pack_kernels> of_device(int device,
                                                                     const std::string& nvrtc);

  /// One launch for each `parts_of_a_launch` parts.
  inline void run(const device::stream& on, const change& how,
                  std::span<const part> parts) const override;

  static constexpr std::size_t parts_of_a_launch = std::extent_v<decltype(detail::pack_table::to)>;

 private:
  static constexpr std::size_t types = 10;  // of NCCL, but for those of 8 bits that are no integers
  static constexpr unsigned threads = 256;
  static constexpr std::size_t bytes_of_a_block = 16384;
  static constexpr std::size_t most_elements = std::size_t{1} << 30U;

  pack_kernels(const device::runtime_compiler& with, int device);
  [[nodiscard]] static std::size_t index_of(ncclDataType_t type) {
    return static_cast<std::size_t>(type);
  }
  [[nodiscard]] static std::string compiled_by(const device::runtime_compiler& with, int device);

  device::kernel_module module_;
  std::array<std::array<device::kernel_module::function, types>, types> functions_{};
};

namespace detail {

struct named_type {
  ncclDataType_t type;
  const char* name;
};
inline constexpr std::array<named_type, 10> packed_types{{{ncclInt8, "i8"},
                                                          {ncclUint8, "u8"},
                                                          {ncclInt32, "i32"},
                                                          {ncclUint32, "u32"},
                                                          {ncclInt64, "i64"},
                                                          {ncclUint64, "u64"},
                                                          {ncclFloat16, "f16"},
                                                          {ncclFloat32, "f32"},
                                                          {ncclFloat64, "f64"},
                                                          {ncclBfloat16, "bf16"}}};
[[nodiscard]] inline const char* name_of(ncclDataType_t type) {
  return std::find_if(packed_types.begin(), std::prev(packed_types.end()),
                      [&](const named_type& each) { return each.type == type; })
      ->name;
}

/// Kernels of the process. Those of a context that has gone are made anew.
struct known_kernels {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, std::shared_ptr<const pack_kernels>> all;
};
inline known_kernels& kernels_of_process() {
  static known_kernels& instance = *new known_kernels;
  return instance;
}

}  // namespace detail

inline std::shared_ptr<const pack_kernels> pack_kernels::of_device(int device,
                                                                   const std::string& nvrtc) {
  detail::known_kernels& known = detail::kernels_of_process();
  const std::lock_guard hold(known.mutex);
  auto& found = known.all[{device, nvrtc}];
  if (found && found->module_.is_there()) return found;
  found.reset();
  const device::runtime_compiler compiler(nvrtc);
  found.reset(new pack_kernels(compiler, device));
  return found;
}

inline std::string pack_kernels::compiled_by(const device::runtime_compiler& with, int device) {
  int major = 0;
  int minor = 0;
  device::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                "cudaDeviceGetAttribute", device);
  device::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                "cudaDeviceGetAttribute", device);
  return with.compile(detail::pack_kernels_text, "pack_kernels.cu", 10 * major + minor).image;
}

inline pack_kernels::pack_kernels(const device::runtime_compiler& with, int device)
    : module_(compiled_by(with, device), device) {
  const auto find = [&](ncclDataType_t from, ncclDataType_t to) {
    std::string name = std::string("cohort_move_") + detail::name_of(from);
    if (from != to) name += std::string("_") + detail::name_of(to);
    functions_[index_of(from)][index_of(to)] = module_.find(name.c_str());
  };
  for (const auto& each : detail::packed_types) find(each.type, each.type);
  for (const ncclDataType_t wide : {ncclFloat32, ncclFloat64}) {
    for (const ncclDataType_t half : {ncclFloat16, ncclBfloat16}) {
      find(wide, half);
      find(half, wide);
    }
  }
}

inline void pack_kernels::run(const device::stream& on, const change& how,
                              std::span<const part> parts) const {
  const std::size_t from_size = size_of(how.from);
  const std::size_t to_size = size_of(how.to);
  const std::size_t per_block = bytes_of_a_block / from_size;
  detail::pack_table table{};
  table.factor = how.factor;
  table.divisor = how.divisor;
  table.neutral = how.neutral;
  table.step = how.divisor != 1 ? 2U : how.factor != 1 ? 1U : 0U;
  const auto launch = [&] {
    if (table.parts == 0) return;
    module_.launch(functions_[index_of(how.from)][index_of(how.to)], on, table.first[table.parts],
                   threads, &table);
    table.parts = 0;
  };
  for (const part& each : parts) {
    for (std::size_t done = 0; done < each.count;) {
      const std::size_t count = std::min(each.count - done, most_elements);
      const unsigned i = table.parts++;
      table.from[i] =
          each.from == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(each.from) + done * from_size;
      table.to[i] = reinterpret_cast<std::uintptr_t>(each.to) + done * to_size;
      table.count[i] = static_cast<unsigned>(count);
      table.first[i + 1] =
          table.first[i] + static_cast<unsigned>((count + per_block - 1) / per_block);
      done += count;
      if (table.parts == parts_of_a_launch) launch();
    }
  }
  launch();
}

}  // namespace cohort::nccl

#endif
