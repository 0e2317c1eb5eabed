// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "support/fake_gpu/nvtx_control.hpp"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

struct nvtxDomainRegistration_st {
  std::map<std::uint32_t, std::string> categories;
  std::deque<std::string> strings;  // their addresses are the handles
};

namespace {

struct tool {
  std::mutex mutex;
  bool there = false;
  std::uint64_t next = 1;  // over all attachments, so that an old range ends no new one
  std::size_t place = 0;
  std::map<std::uint64_t, std::size_t> open;
  std::vector<fake_nvtx::range> ranges;
  std::vector<fake_nvtx::range> moments;
  std::vector<std::string> faults;
};

tool& the() {
  static tool& one = *new tool;
  return one;
}

nvtxDomainRegistration_st& domain_of_library() {
  static auto& one = *new nvtxDomainRegistration_st;
  return one;
}

fake_nvtx::range read(nvtxDomainHandle_t domain, const nvtxEventAttributes_t& about) {
  fake_nvtx::range made;
  if (domain != &domain_of_library()) the().faults.emplace_back("not in the domain 'cohort'");
  if (about.version != NVTX_VERSION || about.size != sizeof about) {
    the().faults.emplace_back("a version or a size that is none of NVTX");
  }
  const auto category = domain_of_library().categories.find(about.category);
  if (category == domain_of_library().categories.end()) {
    the().faults.push_back("category " + std::to_string(about.category) + " has no name");
  } else {
    made.category = category->second;
  }
  if (about.payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
    made.bytes = about.payload.ullValue;
  } else if (about.payloadType != NVTX_PAYLOAD_UNKNOWN) {
    the().faults.emplace_back("a payload of another type");
  }
  if (about.messageType == NVTX_MESSAGE_TYPE_ASCII) {
    made.name = about.message.ascii;
  } else if (about.messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    const auto* const given = reinterpret_cast<const std::string*>(about.message.registered);
    const auto& known = domain_of_library().strings;
    const bool is_known = std::any_of(known.begin(), known.end(),
                                      [&](const std::string& one) { return &one == given; });
    if (!is_known) the().faults.emplace_back("a handle of a string that was not registered");
    if (is_known) made.name = *given;
    made.registered = true;
  } else {
    the().faults.emplace_back("no name");
  }
  return made;
}

}  // namespace

nvtxDomainHandle_t nvtxDomainCreateA(const char* name) {
  const std::lock_guard hold(the().mutex);
  if (!the().there) return nullptr;
  if (std::string(name) != "cohort") the().faults.push_back(std::string("a domain ") + name);
  return &domain_of_library();
}

nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t domain, const char* string) {
  const std::lock_guard hold(the().mutex);
  if (domain == nullptr) return nullptr;
  std::string& kept = domain->strings.emplace_back(string);
  return reinterpret_cast<nvtxStringHandle_t>(&kept);
}

void nvtxDomainNameCategoryA(nvtxDomainHandle_t domain, uint32_t category, const char* name) {
  const std::lock_guard hold(the().mutex);
  if (domain != nullptr) domain->categories[category] = name;
}

void nvtxDomainMarkEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* about) {
  const std::lock_guard hold(the().mutex);
  if (!the().there) return;
  fake_nvtx::range one = read(domain, *about);
  one.began = one.ended = ++the().place;
  the().moments.push_back(std::move(one));
}

nvtxRangeId_t nvtxDomainRangeStartEx(nvtxDomainHandle_t domain,
                                     const nvtxEventAttributes_t* about) {
  const std::lock_guard hold(the().mutex);
  const std::uint64_t number = the().next++;
  if (!the().there) return number;
  fake_nvtx::range one = read(domain, *about);
  one.began = ++the().place;
  the().open[number] = the().ranges.size();
  the().ranges.push_back(std::move(one));
  return number;
}

void nvtxDomainRangeEnd(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  const std::lock_guard hold(the().mutex);
  if (!the().there) return;
  if (domain != &domain_of_library()) the().faults.emplace_back("an end in another domain");
  const auto found = the().open.find(range);
  if (found == the().open.end()) {
    the().faults.push_back("range " + std::to_string(range) + " has not begun, or has ended");
    return;
  }
  the().ranges[found->second].ended = ++the().place;
  the().open.erase(found);
}

namespace fake_nvtx {

void attach(bool there) {
  const std::lock_guard hold(the().mutex);
  the().there = there;
  the().place = 0;
  the().open.clear();
  the().ranges.clear();
  the().moments.clear();
  the().faults.clear();
}

std::vector<range> ranges() {
  const std::lock_guard hold(the().mutex);
  return the().ranges;
}

std::vector<range> moments() {
  const std::lock_guard hold(the().mutex);
  return the().moments;
}

std::vector<std::string> open() {
  const std::lock_guard hold(the().mutex);
  std::vector<std::string> all;
  for (const auto& [number, at] : the().open) {
    all.push_back(the().ranges[at].category + " '" + the().ranges[at].name + "'");
  }
  return all;
}

std::vector<std::string> faults() {
  const std::lock_guard hold(the().mutex);
  return the().faults;
}

std::size_t registered() {
  const std::lock_guard hold(the().mutex);
  return domain_of_library().strings.size();
}

}  // namespace fake_nvtx
