#include "lockstep/runtime/workers/combine.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/StringUtil.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

struct Sum {
  template <typename Value>
  static Value of(Value a, Value b) {
    return a + b;
  }
};

struct Product {
  template <typename Value>
  static Value of(Value a, Value b) {
    return a * b;
  }
};

template <typename Value>
bool is_nan(Value value) {
  if constexpr (std::is_integral_v<Value>) {
    return false;
  } else {
    return std::isnan(value);
  }
}

template <typename Value>
bool is_negative(Value value) {
  if constexpr (std::is_integral_v<Value>) {
    return false;
  } else {
    return std::signbit(value);
  }
}

// Two ranks that exchange values see them in opposite orders, and must choose the same bits: -0 is less than
// 0, and all NaNs become one.

struct Minimum {
  template <typename Value>
  static Value of(Value a, Value b) {
    if (is_nan(a) || is_nan(b)) return std::numeric_limits<Value>::quiet_NaN();
    if (a == b) return is_negative(a) ? a : b;
    return a < b ? a : b;
  }
};

struct Maximum {
  template <typename Value>
  static Value of(Value a, Value b) {
    if (is_nan(a) || is_nan(b)) return std::numeric_limits<Value>::quiet_NaN();
    if (a == b) return is_negative(a) ? b : a;
    return a > b ? a : b;
  }
};

/// Copies in and out, since neither end needs to be aligned; compilers make vector instructions of it.
template <typename Operation, typename Stored, typename Value = Stored>
void combine(uint8_t* into, const uint8_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Stored a;
    Stored b;
    std::memcpy(&a, into + i * sizeof(Stored), sizeof(Stored));
    std::memcpy(&b, from + i * sizeof(Stored), sizeof(Stored));
    // Integers wrap around, as ATen's do.
    if constexpr (std::is_integral_v<Value>) {
      using Wrapping = std::make_unsigned_t<Value>;
      if constexpr (std::is_same_v<Operation, Sum> || std::is_same_v<Operation, Product>) {
        a = static_cast<Stored>(Operation::of(static_cast<Wrapping>(a), static_cast<Wrapping>(b)));
      } else {
        a = Operation::of(a, b);
      }
    } else {
      a = static_cast<Stored>(Operation::of(static_cast<Value>(a), static_cast<Value>(b)));
    }
    std::memcpy(into + i * sizeof(Stored), &a, sizeof(Stored));
  }
}

#if defined(__x86_64__)

/// Combines 4 elements.
template <typename Operation>
__attribute__((target("f16c"))) void combine_4_halves(uint8_t* into, const uint8_t* from) {
  const __m128 a = _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(into)));
  const __m128 b = _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  const __m128i result = _mm_cvtps_ph(Operation::of(a, b), _MM_FROUND_TO_NEAREST_INT);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(into), result);
}

/// As combine<Operation, c10::Half, float>, by the processor's conversions: c10::Half's take 20 times as
/// long.
template <typename Operation>
__attribute__((target("f16c"))) void combine_halves(uint8_t* into, const uint8_t* from, size_t count) {
  constexpr size_t kTogether = 4;
  constexpr size_t kBytes = kTogether * sizeof(c10::Half);
  for (; count >= kTogether; count -= kTogether, into += kBytes, from += kBytes)
    combine_4_halves<Operation>(into, from);
  uint8_t last_into[kBytes] = {};
  uint8_t last_from[kBytes] = {};
  std::memcpy(last_into, into, count * sizeof(c10::Half));
  std::memcpy(last_from, from, count * sizeof(c10::Half));
  combine_4_halves<Operation>(last_into, last_from);
  std::memcpy(into, last_into, count * sizeof(c10::Half));
}

#endif

template <typename Operation>
CombineFunction half_function() {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<Operation, Sum> || std::is_same_v<Operation, Product>) {
    // Every processor with AVX2 has F16C, for which Clang 14 cannot ask.
    if (__builtin_cpu_supports("avx2")) return combine_halves<Operation>;
  }
#endif
  return combine<Operation, c10::Half, float>;
}

template <typename Operation>
CombineFunction function_for(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return combine<Operation, float>;
    case at::kDouble:
      return combine<Operation, double>;
    case at::kHalf:
      return half_function<Operation>();
    case at::kBFloat16:
      return combine<Operation, c10::BFloat16, float>;
    case at::kInt:
      return combine<Operation, int32_t>;
    case at::kLong:
      return combine<Operation, int64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

CombineFunction combine_function(c10d::ReduceOp::RedOpType op, at::ScalarType dtype) {
  CombineFunction function = nullptr;
  switch (op) {
    case c10d::ReduceOp::SUM:
      function = function_for<Sum>(dtype);
      break;
    case c10d::ReduceOp::PRODUCT:
      function = function_for<Product>(dtype);
      break;
    case c10d::ReduceOp::MIN:
      function = function_for<Minimum>(dtype);
      break;
    case c10d::ReduceOp::MAX:
      function = function_for<Maximum>(dtype);
      break;
    default:
      throw InvalidArgument("expected a sum, product, minimum or maximum, but got another reduction");
  }
  if (function == nullptr)
    throw InvalidArgument(
        c10::str("expected float16, bfloat16, float32, float64, int32 or int64, but got ", dtype));
  return function;
}

}  // namespace lockstep
