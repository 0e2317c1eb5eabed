// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A buffer argument inside an operation: borrowed, or owned and handed back.

#include <cohort/core/buffer.hpp>

#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::comm {

/// Keeps what a verb was given for a parameter `B&&`: the view of a borrowed buffer, or the
/// container itself if it was passed as an rvalue. An owned container lies in the operation, which
/// does not move while MPI works, so take `view()` at the post, not before.
template <class B>
class argument {
 public:
  static constexpr bool owned = owned_buffer<B>;
  using value_type = element_of_t<B>;
  using view_type = decltype(view_of(std::declval<std::remove_reference_t<B>&>()));

  explicit argument(std::remove_reference_t<B>& buffer) : kept_(keep(buffer)) {}

  [[nodiscard]] view_type view() noexcept {
    if constexpr (owned) {
      return view_of(kept_);
    } else {
      return kept_;
    }
  }
  /// Elements; the same for an owned container before and after it is moved in.
  [[nodiscard]] std::size_t count() const noexcept {
    if constexpr (owned) {
      return view_of(const_cast<B&>(kept_)).count;
    } else {
      return kept_.count;
    }
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * sizeof(value_type); }

  /// What the completion gives back: nothing, or the container.
  [[nodiscard]] auto take() {
    if constexpr (owned) {
      return std::tuple<B>(std::move(kept_));
    } else {
      return std::tuple<>();
    }
  }

 private:
  static decltype(auto) keep(std::remove_reference_t<B>& buffer) {
    if constexpr (owned) {
      return std::move(buffer);
    } else {
      return view_of(buffer);
    }
  }
  std::conditional_t<owned, B, view_type> kept_;
};

namespace detail {
template <class Kept, class... Extra>
struct signature_from;
template <class... Kept, class... Extra>
struct signature_from<std::tuple<Kept...>, Extra...> {
  using type = void(std::error_code, Extra..., Kept...);
};
}  // namespace detail

/// `void(std::error_code, Extra..., owned containers in argument order)`.
template <class Arguments, class... Extra>
struct completion_signature;
template <class... Arguments, class... Extra>
struct completion_signature<std::tuple<Arguments...>, Extra...> {
  using kept = decltype(std::tuple_cat(std::declval<Arguments&>().take()...));
  using type = typename detail::signature_from<kept, Extra...>::type;
};

/// Calls `handler(error, extra..., owned containers)`.
template <class Handler, class Kept, class... Extra>
void complete_with(Handler&& handler, std::error_code error, Kept&& kept, Extra&&... extra) {
  std::apply(
      [&](auto&&... containers) {
        std::forward<Handler>(handler)(error, std::forward<Extra>(extra)...,
                                       std::move(containers)...);
      },
      std::forward<Kept>(kept));
}

}  // namespace cohort::comm
