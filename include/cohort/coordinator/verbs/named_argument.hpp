// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What named verbs take and make: buffers of the host or of a device, borrowed or owned, and
/// owners in device memory whose class only the caller knows.

#include <cohort/comm/device_backend.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/reduction.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// `count` elements for a result, beside an empty buffer; taken in the order of the backend's
/// stream, if it has given one.
template <class Owner>
Owner make_beside(std::size_t count, const Owner& like, const stream_ref& taken_on) {
  using traits = memory_traits<Owner>;
  if constexpr (requires { traits::make(count, like, taken_on); }) {
    if (taken_on.device >= 0) return traits::make(count, like, taken_on);
  }
  return traits::make(count, like);
}

/// An empty one beside a buffer. One of nothing and nowhere stays that until the backend says
/// where.
template <class B>
auto empty_beside(const B& buffer) {
  using traits = memory_traits<B>;
  using owner = typename traits::result;
  constexpr bool chooses =
      requires(owner like, stream_ref on) { memory_traits<owner>::make(std::size_t{0}, like, on); };
  if (chooses && traits::locate(buffer).device < 0) return owner();
  return owner(traits::make(0, buffer));
}

class located_result {
 public:
  located_result(const located_result&) = delete;
  virtual ~located_result() = default;
  /// Room for `count` elements, see make_beside. Throws what the device says.
  [[nodiscard]] virtual comm::device_buffer make(std::size_t count, const stream_ref& taken_on) = 0;

 protected:
  located_result() noexcept {}
};

template <class Owner>
class located_result_of final : public located_result {
 public:
  explicit located_result_of(Owner empty) : value(std::move(empty)) {}
  comm::device_buffer make(std::size_t count, const stream_ref& taken_on) override {
    using traits = memory_traits<Owner>;
    value = make_beside(count, value, taken_on);
    const std::size_t bytes = count * sizeof(*value.data());
    return {"result", value.data(), bytes, traits::locate(value), traits::lease(value)};
  }
  Owner value;
};

/// An empty one beside a buffer of class `B`.
template <class B>
std::shared_ptr<located_result> make_located_result(const void* buffer) {
  using owner = typename memory_traits<B>::result;
  return std::make_shared<located_result_of<owner>>(empty_beside(*static_cast<const B*>(buffer)));
}

/// One of cohort::op, and not the user's own.
template <class Op>
inline constexpr bool is_known_reduction = requires {
  { Op::code } -> std::convertible_to<reduction_code>;
};

/// What a named verb reads from and writes to.
template <class B>
concept named_input = input_buffer<B> || located_buffer<B>;
template <class B>
concept named_output = output_buffer<B> || writable_located_buffer<B>;

namespace detail {
template <class B>
struct value_of {
  using type = element_of_t<B>;
};
template <located_buffer B>
struct value_of<B> {
  using type = std::remove_const_t<
      std::remove_pointer_t<cohort::detail::data_of_t<std::remove_reference_t<B>>>>;
};
}  // namespace detail

/// The element type of a buffer of either kind, without const.
template <class B>
using value_of = typename detail::value_of<B>::type;

/// An input and an output of the same elements, both on the host or both on a device.
template <class In, class Out>
concept beside =
    named_input<In> && named_output<Out> && (located_buffer<In> == located_buffer<Out>) &&
    std::same_as<value_of<In>, value_of<Out>>;

inline void require_contiguous(task& of, bool contiguous) {
  if (contiguous) return;
  of.fail(errc::not_supported, "named operations take contiguous buffers");
}

/// Keeps what a verb was given. `use` tells the task of it, once it lies where it stays, and
/// returns where its elements are; `take` gives back what is owned.
template <class B>
class named_argument {
 public:
  explicit named_argument(std::remove_reference_t<B>& buffer) : kept_(buffer) {}

  auto use(task& of, const char*) {
    const auto view = kept_.view();
    require_contiguous(of, view.contiguous());
    return std::pair(view.data, view.count);
  }
  [[nodiscard]] auto take() { return kept_.take(); }

 private:
  comm::argument<B> kept_;
};

/// One on a device. What is borrowed may go before the operation ends where it has a lease.
template <located_buffer B>
class named_argument<B> {
  using object = std::remove_cvref_t<B>;
  using pointer = cohort::detail::data_of_t<std::remove_reference_t<B>>;
  static constexpr bool owned = owned_located_buffer<B>;
  struct borrowed {
    explicit borrowed(std::remove_reference_t<B>& buffer)
        : data(buffer.data()),
          size(buffer.size()),
          where(memory_traits<object>::locate(buffer)),
          lease(memory_traits<object>::lease(buffer)) {}
    pointer data;
    std::size_t size;
    memory_location where;
    std::shared_ptr<const void> lease;
  };

 public:
  explicit named_argument(std::remove_reference_t<B>& buffer) : kept_(keep(buffer)) {}

  auto use(task& of, const char* field) {
    const auto put = [&](const auto& data, std::size_t count, const memory_location& where,
                         std::shared_ptr<const void> lease) {
      of.use_device().buffers.push_back(
          {field, data, count * sizeof(value_of<B>), where, std::move(lease)});
      return std::pair(data, count);
    };
    if constexpr (owned) {
      return put(kept_.data(), kept_.size(), memory_traits<object>::locate(kept_),
                 memory_traits<object>::lease(kept_));
    } else {
      return put(kept_.data, kept_.size, kept_.where, kept_.lease);
    }
  }
  [[nodiscard]] auto take() { return comm::detail::back_to_caller<owned, B>(kept_); }

 private:
  static decltype(auto) keep(std::remove_reference_t<B>& buffer) {
    if constexpr (owned) {
      return std::move(buffer);
    } else {
      return borrowed(buffer);
    }
  }
  std::conditional_t<owned, object, borrowed> kept_;
};

/// What a verb makes of a buffer: a vector, or an owner beside it.
template <class In>
class named_result {
 public:
  using type = std::vector<value_of<In>>;
  explicit named_result(const std::remove_reference_t<In>&) noexcept {}

  /// Room for `count` elements. May throw std::bad_alloc.
  void* make(task&, std::size_t count) {
    value_.resize(count);
    return value_.data();
  }
  [[nodiscard]] type take() { return std::move(value_); }

 private:
  type value_;
};

/// The buffer may be gone when it is made, so an empty one is made of it at once.
template <located_buffer In>
class named_result<In> {
 public:
  using type = typename memory_traits<std::remove_cvref_t<In>>::result;
  explicit named_result(const std::remove_reference_t<In>& like) noexcept {
    try {
      value_ = empty_beside(like);
    } catch (...) {
      why_ = std::current_exception();
    }
  }

  /// Also throws what the device says.
  void* make(task& of, std::size_t count) {
    if (why_) std::rethrow_exception(why_);
    value_ = make_beside(count, value_, of.use_device().results);
    of.use_device().buffers.push_back({"result", value_.data(), count * sizeof(value_of<In>),
                                       memory_traits<type>::locate(value_),
                                       memory_traits<type>::lease(value_)});
    return value_.data();
  }
  [[nodiscard]] type take() { return std::move(value_); }

 private:
  type value_;
  std::exception_ptr why_;
};

/// Memory of the caller for what comes. It may have more room than is needed.
template <class In, class Out>
class named_room {
 public:
  named_room(const std::remove_reference_t<In>& in, std::remove_reference_t<Out>& out)
      : spare_(in), out_(out) {}

  void use(task& of, const instance& where) {
    where_ = &where;
    const auto [data, count] = out_.use(of, "out");
    data_ = data;
    room_ = count;
  }
  /// Where `count` elements go. Without room the task fails, and they go into memory that nobody
  /// sees [protocol Z5].
  void* make(task& of, std::size_t count) {
    if (fits(of, count, where_->name_of(of))) return data_;
    return spare_.make(of, count);
  }
  /// Whether they have room; otherwise the task fails.
  bool fits(task& of, std::size_t count, std::string_view name) {
    count_ = count;
    if (count <= room_) return true;
    of.fail(errc::size_mismatch, "rank " + std::to_string(where_->rank()) + ": " +
                                     std::string(of.verb()) + " '" + std::string(name) +
                                     "': out has room for " + std::to_string(room_) +
                                     " elements, of " + std::to_string(count) + " that come");
    return false;
  }
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] auto take() { return out_.take(); }

 private:
  named_result<In> spare_;
  named_argument<Out> out_;
  const instance* where_ = nullptr;
  void* data_ = nullptr;
  std::size_t room_ = 0;
  std::size_t count_ = 0;
};

/// The number of a reduction type; a digest of its name for the user's own, which is equal in all
/// copies of one program.
template <class Op>
[[nodiscard]] reduction_code code_of() {
  if constexpr (is_known_reduction<Op>) {
    return Op::code;
  } else {
    std::uint32_t digest = 2166136261U;
    for (const char* at = __PRETTY_FUNCTION__; *at != '\0'; ++at) {
      digest = (digest ^ static_cast<unsigned char>(*at)) * 16777619U;
    }
    return static_cast<reduction_code>(digest |
                                       static_cast<std::uint32_t>(reduction_code::first_own));
  }
}

/// What bundles take: those of cohort::op, not one of your own.
template <class Op>
concept bundle_reduction = reduction<Op> && is_known_reduction<std::remove_cvref_t<Op>>;

/// For assertions that say what is wrong with a call.
template <class...>
inline constexpr bool never_fits = false;

}  // namespace cohort::coordination
