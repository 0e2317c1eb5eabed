// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The double's subset of NVTX against what the real header says: compiled with the one, and with
// the other where the toolkit is. Compiling it is the check.
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace {

static_assert(NVTX_VERSION == 3 && sizeof(nvtxEventAttributes_t) == 48 &&
              NVTX_EVENT_ATTRIB_STRUCT_SIZE == 48);
static_assert(offsetof(nvtxEventAttributes_t, version) == 0 &&
              offsetof(nvtxEventAttributes_t, size) == 2 &&
              offsetof(nvtxEventAttributes_t, category) == 4 &&
              offsetof(nvtxEventAttributes_t, colorType) == 8 &&
              offsetof(nvtxEventAttributes_t, color) == 12 &&
              offsetof(nvtxEventAttributes_t, payloadType) == 16 &&
              offsetof(nvtxEventAttributes_t, payload) == 24 &&
              offsetof(nvtxEventAttributes_t, messageType) == 32 &&
              offsetof(nvtxEventAttributes_t, message) == 40);
static_assert(NVTX_MESSAGE_TYPE_ASCII == 1 && NVTX_MESSAGE_TYPE_REGISTERED == 3 &&
              NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 == 1);
static_assert(std::is_same_v<nvtxRangeId_t, std::uint64_t> ||
              sizeof(nvtxRangeId_t) == sizeof(std::uint64_t));

template <class Wanted, class Found>
constexpr bool is(Found*) {
  return std::is_same_v<Wanted, Found>;
}
static_assert(is<nvtxDomainHandle_t(const char*)>(&nvtxDomainCreateA));
static_assert(is<nvtxStringHandle_t(nvtxDomainHandle_t, const char*)>(&nvtxDomainRegisterStringA));
static_assert(is<void(nvtxDomainHandle_t, std::uint32_t, const char*)>(&nvtxDomainNameCategoryA));
static_assert(is<void(nvtxDomainHandle_t, const nvtxEventAttributes_t*)>(&nvtxDomainMarkEx));
static_assert(
    is<nvtxRangeId_t(nvtxDomainHandle_t, const nvtxEventAttributes_t*)>(&nvtxDomainRangeStartEx));
static_assert(is<void(nvtxDomainHandle_t, nvtxRangeId_t)>(&nvtxDomainRangeEnd));

}  // namespace
