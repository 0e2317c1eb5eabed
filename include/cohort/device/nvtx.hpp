// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Tells NVTX, and so Nsight Systems, of what the library does: `COHORT_NVTX` says whether it can.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

// Header-only, and part of the toolkit. A program may define it as 0 to leave the ranges out.
#if !defined(COHORT_NVTX)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define COHORT_NVTX 1
#else
#define COHORT_NVTX 0
#endif
#endif

#include <cohort/core/tool_range.hpp>

#if COHORT_NVTX

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#endif

namespace cohort::device {

/// Looks whether a tool that understands NVTX is there, and if so tells it from now on of verbs,
/// named operations, packing, copies and communicators, in a domain "cohort". The layer nccl and
/// staged copies call it; a program that wants to see its coordinators on the host calls it once.
/// *Threads*: any.
inline void attach_tools() noexcept;

#if COHORT_NVTX

namespace detail {

class nvtx_domain {
 public:
  static nvtx_domain& get() noexcept {
    static nvtx_domain& one = *new nvtx_domain;  // ranges end while static objects go, too
    return one;
  }

  void attach() noexcept {
    const std::lock_guard hold(mutex_);
    if (domain_ == nullptr) domain_ = nvtxDomainCreateA("cohort");
    // Null: no tool. NVTX has set all its functions to null then.
    if (domain_ == nullptr || tools::watched()) return;
    for (const auto& [number, name] : names) {
      nvtxDomainNameCategoryA(domain_, static_cast<std::uint32_t>(number), name);
    }
    static constexpr tools::tool functions{&begin, &end, &mark};
    tools::attached.store(&functions, std::memory_order_release);
  }

 private:
  using category = tools::category;
  static constexpr std::array<std::pair<category, const char*>, 9> names{{
      {category::verb, "verb"},
      {category::negotiate, "negotiate"},
      {category::operation, "operation"},
      {category::data, "data"},
      {category::pack, "pack"},
      {category::unpack, "unpack"},
      {category::copy, "copy"},
      {category::communicator, "communicator"},
      {category::event, "event"},
  }};

  /// NVTX wants a zero at the end.
  using text = std::array<char, 256>;
  static void put(text& to, std::string_view name) noexcept {
    std::size_t size = std::min(name.size(), to.size() - 1);
    const auto splits = [&] { return (static_cast<unsigned char>(name[size]) & 0xC0U) == 0x80U; };
    while (size < name.size() && size > 0 && splits()) --size;  // inside a character of UTF-8
    std::memcpy(to.data(), name.data(), size);
    to[size] = '\0';
  }

  /// Literals are few, so they may stay for ever; the names of a program may be many.
  nvtxStringHandle_t registered(std::string_view name) noexcept {
    const std::lock_guard hold(mutex_);
    try {
      auto& handle = strings_[name];
      if (handle == nullptr) handle = nvtxDomainRegisterStringA(domain_, std::string(name).c_str());
      return handle;
    } catch (...) {
      return nullptr;
    }
  }

  nvtxEventAttributes_t about(category what, tools::label name, std::uint64_t bytes,
                              text& buffer) noexcept {
    nvtxEventAttributes_t made{};
    made.version = NVTX_VERSION;
    made.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    made.category = static_cast<std::uint32_t>(what);
    if (bytes != 0) {
      made.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      made.payload.ullValue = bytes;
    }
    if (name.literal) made.message.registered = registered(name.text);
    if (made.message.registered != nullptr) {
      made.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    } else {
      put(buffer, name.text);
      made.messageType = NVTX_MESSAGE_TYPE_ASCII;
      made.message.ascii = buffer.data();
    }
    return made;
  }

  static std::uint64_t begin(category what, tools::label name, std::uint64_t bytes) noexcept {
    text buffer;
    const nvtxEventAttributes_t range = get().about(what, name, bytes, buffer);
    return nvtxDomainRangeStartEx(get().domain_, &range);
  }
  static void end(std::uint64_t range) noexcept { nvtxDomainRangeEnd(get().domain_, range); }
  static void mark(category what, tools::label name, std::uint64_t bytes) noexcept {
    text buffer;
    const nvtxEventAttributes_t moment = get().about(what, name, bytes, buffer);
    nvtxDomainMarkEx(get().domain_, &moment);
  }

  std::mutex mutex_;
  nvtxDomainHandle_t domain_ = nullptr;
  std::unordered_map<std::string_view, nvtxStringHandle_t> strings_;
};

}  // namespace detail

inline void attach_tools() noexcept { detail::nvtx_domain::get().attach(); }

#else

inline void attach_tools() noexcept {}

#endif

}  // namespace cohort::device

#endif
