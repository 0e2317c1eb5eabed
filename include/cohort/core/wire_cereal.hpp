// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Lets types travel by the functions that they have for cereal, where cereal is installed;
/// otherwise this header is empty.
///
/// A type is asked for by `template <> inline constexpr bool cohort::wire::by_cereal<T> = true;`,
/// before it is first sent. cereal's streams cost a copy on either side, and it trusts the lengths
/// that it reads: damaged bytes may make it ask for much memory. Types of one's own are better
/// served by wire_fields.

#if __has_include(<cereal/archives/binary.hpp>)

#include <cohort/core/wire.hpp>

#include <cereal/archives/binary.hpp>

#include <exception>
#include <istream>
#include <sstream>
#include <streambuf>
#include <string_view>

namespace cohort::wire {

/// Whether T travels by cereal's binary archive.
template <class T>
inline constexpr bool by_cereal = false;

namespace detail {

/// Bytes to be read in place.
class view_buffer final : public std::streambuf {
 public:
  explicit view_buffer(std::string_view bytes) {
    auto* const begin = const_cast<char*>(bytes.data());  // NOLINT: it is only read
    setg(begin, begin, begin + bytes.size());
  }
  [[nodiscard]] bool at_end() const noexcept { return gptr() == egptr(); }
};

}  // namespace detail

/// A length, and what cereal writes. What cereal does not take when reading is bad_value.
template <class Archive, class T>
  requires(by_cereal<T>)
void wire_fields(Archive& archive, T& value) {
  if constexpr (Archive::reads) {
    detail::view_buffer bytes(archive.text());
    if (!archive.ok()) return;
    try {
      std::istream stream(&bytes);
      cereal::BinaryInputArchive in(stream);
      in(value);
      if (!bytes.at_end()) archive.fail(wire_errc::trailing);
    } catch (const std::exception&) {  // cereal's own, or a length beyond all memory
      archive.fail(wire_errc::bad_value);
    }
  } else {
    std::ostringstream stream;
    {
      cereal::BinaryOutputArchive out(stream);
      out(value);
    }
    archive.text(stream.view());
  }
}

}  // namespace cohort::wire

#endif
