// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `core/function_table.hpp`.

#include <cohort/core/function_table.hpp>

#include <link.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <tuple>

namespace cohort {

namespace detail {

/// What has registered itself so far. Constant-initialised, so that it is there before the first
/// static object that links itself.
struct registration_list {
  std::mutex mutex;
  registration* first = nullptr;
};
inline constinit registration_list registrations;

COHORT_INLINE registration::registration(any_function what, const std::type_info& its_type,
                                         std::string_view text) noexcept
    : code(what), type(&its_type), signature(text) {
  const std::lock_guard guard(registrations.mutex);
  next = registrations.first;
  if (next != nullptr) next->previous = this;
  registrations.first = this;
}

// A library that is unloaded before the table is made takes its functions along.
COHORT_INLINE registration::~registration() {
  const std::lock_guard guard(registrations.mutex);
  (previous == nullptr ? registrations.first : previous->next) = next;
  if (next != nullptr) next->previous = previous;
}

/// An executable or library as it lies in memory.
struct loaded_module {
  std::string id;    // build id in hexadecimal, else the last component of the path
  std::string path;  // empty: the executable
  bool has_build_id = false;
  std::uintptr_t base = 0;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;  // from, to

  template <class Any = void>
  [[nodiscard]] bool holds(std::uintptr_t address) const noexcept {
    return std::any_of(ranges.begin(), ranges.end(), [address](const auto& range) {
      return range.first <= address && address < range.second;
    });
  }
};

[[nodiscard]] COHORT_INLINE std::string hexadecimal(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte one : bytes) {
    text.push_back(digits[std::to_integer<std::size_t>(one) >> 4U]);
    text.push_back(digits[std::to_integer<std::size_t>(one) & 15U]);
  }
  return text;
}

/// The GNU build id among the notes of a segment, empty if it is not there.
[[nodiscard]] COHORT_INLINE std::span<const std::byte> build_id_in(std::span<const std::byte> notes,
                                                                   std::size_t alignment) noexcept {
  constexpr std::uint32_t gnu_build_id = 3;
  const auto padded = [alignment](std::size_t size) {
    return (size + alignment - 1) / alignment * alignment;
  };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head{};
    std::memcpy(&head, notes.data(), sizeof head);
    const std::size_t begin = padded(sizeof head + head.n_namesz);
    const std::size_t end = begin + head.n_descsz;
    if (end > notes.size()) break;
    if (head.n_type == gnu_build_id && head.n_namesz == 4 &&
        std::memcmp(notes.data() + sizeof head, "GNU", 4) == 0) {
      return notes.subspan(begin, head.n_descsz);
    }
    notes = notes.subspan(std::min(padded(end), notes.size()));
  }
  return {};
}

/// All that is loaded now, the executable first.
template <class Any = void>
[[nodiscard]] std::vector<loaded_module> loaded_modules() {
  std::vector<loaded_module> modules;
  const auto add = [](dl_phdr_info* info, std::size_t, void* to) {
    loaded_module one;
    one.base = info->dlpi_addr;
    one.path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    for (std::size_t i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info->dlpi_phdr[i];
      const std::uintptr_t from = one.base + segment.p_vaddr;
      if (segment.p_type == PT_LOAD) one.ranges.emplace_back(from, from + segment.p_memsz);
    }
    for (std::size_t i = 0; i < info->dlpi_phnum && one.id.empty(); ++i) {
      const ElfW(Phdr)& segment = info->dlpi_phdr[i];
      const std::uintptr_t from = one.base + segment.p_vaddr;
      if (segment.p_type != PT_NOTE || segment.p_memsz == 0) continue;
      if (!one.holds(from) || !one.holds(from + segment.p_memsz - 1)) continue;  // not in memory
      one.id = hexadecimal(
          build_id_in({reinterpret_cast<const std::byte*>(from), segment.p_memsz},  // NOLINT
                      segment.p_align == 8 ? 8 : 4));
    }
    one.has_build_id = !one.id.empty();
    if (!one.has_build_id) one.id = one.path.substr(one.path.rfind('/') + 1);
    static_cast<std::vector<loaded_module>*>(to)->push_back(std::move(one));
    return 0;
  };
  dl_iterate_phdr(add, &modules);
  return modules;
}

/// "sha256:" and the digest of a file, or "unknown" if it cannot be read. Null: the executable.
[[nodiscard]] COHORT_INLINE std::string file_id(const char* path) {
  std::FILE* const file = std::fopen(path != nullptr ? path : "/proc/self/exe", "rb");
  if (file == nullptr) return "unknown";
  sha256 hash;
  std::vector<std::byte> buffer(1U << 16U);
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), file)) > 0;) {
    hash.update(std::span(buffer).first(got));
  }
  const bool good = std::ferror(file) == 0;
  std::fclose(file);
  return good ? "sha256:" + hexadecimal(hash.finish()) : "unknown";
}

[[nodiscard]] COHORT_INLINE std::string id_of(const loaded_module& one) {
  if (one.has_build_id) return "build-id:" + one.id;
  return file_id(one.path.empty() ? nullptr : one.path.c_str());
}

[[nodiscard]] COHORT_INLINE std::uintptr_t address_of(any_function code) noexcept {
  return reinterpret_cast<std::uintptr_t>(code);  // NOLINT
}

}  // namespace detail

template <class Any>
const function_table& function_table::instance() {
  // Never destroyed: calls may still arrive while static objects end.
  static const function_table& table = *[] {
    auto* const made = new function_table;
    made->fill<Any>();
    return made;
  }();
  return table;
}

template <class Any>
void function_table::fill() {
  struct candidate {
    function_table::entry what;
    std::string path;
    known how;
  };
  const std::vector<detail::loaded_module> modules = detail::loaded_modules();
  std::vector<candidate> all;
  {
    const std::lock_guard guard(detail::registrations.mutex);
    for (const detail::registration* at = detail::registrations.first; at != nullptr;
         at = at->next) {
      const std::uintptr_t address = detail::address_of(at->code);
      const auto in = std::find_if(modules.begin(), modules.end(),
                                   [&](const auto& one) { return one.holds(address); });
      candidate next{{{}, address, std::string(at->signature)}, {}, {at->code, at->type}};
      if (in != modules.end()) {
        next.what.module = in->id;
        next.what.offset = address - in->base;
        next.path = in->path;
      }
      all.push_back(std::move(next));
    }
  }
  // The signature comes last, so that of folded functions every process keeps the same one.
  const auto key = [](const candidate& one) {
    return std::tuple(std::string_view(one.what.module), one.what.offset,
                      std::string_view(one.path), std::string_view(one.how.type->name()),
                      std::string_view(one.what.signature));
  };
  std::sort(all.begin(), all.end(), [&key](const candidate& left, const candidate& right) {
    return key(left) < key(right);
  });
  for (candidate& one : all) {
    if (!known_.empty() && known_.back().code == one.how.code &&
        *known_.back().type == *one.how.type) {
      continue;
    }
    by_code_.emplace_back(detail::address_of(one.how.code), entries_.size());
    known_.push_back(one.how);
    entries_.push_back(std::move(one.what));
  }
  std::sort(by_code_.begin(), by_code_.end());

  sha256 hash;
  const auto number = [&hash](std::uint64_t value) {
    std::array<std::byte, 8> little_endian;
    for (std::byte& one : little_endian) {
      one = static_cast<std::byte>(value);
      value >>= 8U;
    }
    hash.update(little_endian);
  };
  const auto text = [&](std::string_view value) {
    number(value.size());
    hash.update(std::as_bytes(std::span(value.data(), value.size())));
  };
  number(entries_.size());
  for (const entry& one : entries_) {
    text(one.module);
    number(one.offset);
    text(one.signature);
  }
  digest_ = hash.finish();
}

COHORT_INLINE std::size_t function_table::number_of(any_function code, const std::type_info& type,
                                                    std::string_view name) const {
  const std::uintptr_t address = detail::address_of(code);
  auto at = std::lower_bound(by_code_.begin(), by_code_.end(), address,
                             [](const auto& one, auto wanted) { return one.first < wanted; });
  for (; at != by_code_.end() && at->first == address; ++at) {
    if (*known_[at->second].type == type) return at->second;
  }
  throw error(errc::invalid_argument,
              "function " + (name.empty() ? std::string("?") : std::string(name)) +
                  " is not in the table: it was not registered, or a library brought it that was "
                  "loaded after the table was made");
}

COHORT_INLINE any_function function_table::code_at(std::size_t index,
                                                   const std::type_info& type) const {
  if (index < known_.size() && *known_[index].type == type) return known_[index].code;
  throw error(errc::unknown_function,
              index < known_.size()
                  ? "function " + std::to_string(index) + " (" + entries_[index].signature +
                        ") is not of the kind that is asked for"
                  : "function " + std::to_string(index) + " of " + std::to_string(known_.size()));
}

template <class Any>
std::string first_difference(std::span<const function_table::entry> mine,
                             std::span<const function_table::entry> others,
                             std::string_view my_name, std::string_view others_name) {
  const auto describe = [](const function_table::entry& one) {
    char offset[24];
    std::snprintf(offset, sizeof offset, "0x%llx", static_cast<unsigned long long>(one.offset));
    std::string text = "'";
    text.append(one.signature).append("' at ").append(offset).append(" of ");
    return text.append(one.module.empty() ? "the executable" : one.module);
  };
  std::string text;
  const std::size_t common = std::min(mine.size(), others.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (mine[i] == others[i]) continue;
    text.append("function ").append(std::to_string(i)).append(" is ").append(describe(mine[i]));
    text.append(" ").append(my_name).append(" and ").append(describe(others[i]));
    return text.append(" ").append(others_name);
  }
  if (mine.size() == others.size()) return text;
  const bool more = mine.size() > others.size();
  text.append("function ").append(std::to_string(common)).append(", ");
  text.append(describe(more ? mine[common] : others[common])).append(", exists only ");
  return text.append(more ? my_name : others_name);
}

template <class Any>
const std::string& program_id() {
  static const std::string& id = *new std::string([] {
    const std::vector<detail::loaded_module> modules = detail::loaded_modules();
    return modules.empty() ? detail::file_id(nullptr) : detail::id_of(modules.front());
  }());
  return id;
}

template <class Any>
code_place place_of(any_function code) {
  const std::uintptr_t address = detail::address_of(code);
  for (const detail::loaded_module& one : detail::loaded_modules()) {
    if (one.holds(address)) return {detail::id_of(one), address - one.base};
  }
  return {"unknown", address};
}

}  // namespace cohort
