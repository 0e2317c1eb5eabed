// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A tool as NVTX loads it into a program (NVTX_INJECTION64_PATH): it prints what it is told, on one
// line. Compiled with the real header.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

namespace {

std::map<std::uint32_t, std::string> categories;
std::map<const void*, std::string> strings;
std::uint64_t ranges = 0;
nvtxDomainHandle_t the_domain() { return reinterpret_cast<nvtxDomainHandle_t>(&categories); }

void print(const char* what, const nvtxEventAttributes_t& about) {
  const bool registered = about.messageType == NVTX_MESSAGE_TYPE_REGISTERED;
  const std::string name = registered ? strings[about.message.registered] : about.message.ascii;
  const auto bytes = about.payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64
                         ? static_cast<unsigned long long>(about.payload.ullValue)
                         : 0;
  std::printf("%s %s '%s' %llu%s; ", what, categories[about.category].c_str(), name.c_str(), bytes,
              registered ? " registered" : "");
}

nvtxDomainHandle_t create(const char* name) {
  std::printf("domain '%s'; ", name);
  return the_domain();
}
void name_category(nvtxDomainHandle_t, std::uint32_t number, const char* name) {
  categories[number] = name;
}
nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  const auto handle = reinterpret_cast<nvtxStringHandle_t>(new char);
  strings[handle] = text;
  return handle;
}
nvtxRangeId_t start(nvtxDomainHandle_t, const nvtxEventAttributes_t* about) {
  print("begin", *about);
  return ++ranges;
}
void end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  std::printf("end %llu%s; ", static_cast<unsigned long long>(range),
              domain == the_domain() ? "" : " elsewhere");
}
void mark(nvtxDomainHandle_t, const nvtxEventAttributes_t* about) { print("mark", *about); }

template <class Function>
void put(NvtxFunctionTable table, NvtxCallbackIdCore2 number, Function* function) {
  *table[number] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t exported) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(exported(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  put(table, NVTX_CBID_CORE2_DomainCreateA, &create);
  put(table, NVTX_CBID_CORE2_DomainNameCategoryA, &name_category);
  put(table, NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  put(table, NVTX_CBID_CORE2_DomainRangeStartEx, &start);
  put(table, NVTX_CBID_CORE2_DomainRangeEnd, &end);
  put(table, NVTX_CBID_CORE2_DomainMarkEx, &mark);
  return 1;
}
