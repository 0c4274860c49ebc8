#include "lockstep/datasets/parquet/internal/column_range.h"

#include <arrow/scalar.h>
#include <arrow/type_traits.h>
#include <parquet/arrow/reader.h>
#include <parquet/statistics.h>

#include <cmath>
#include <limits>
#include <memory>

namespace lockstep {

namespace {

/// Returns the scalar as a number if it is of one of these types.
template <typename... Types>
std::optional<double> number_of(const arrow::Scalar& scalar) {
  std::optional<double> number;
  const auto take = [&]<typename Type>(const Type*) {
    if (scalar.type->id() == Type::type_id)
      number =
          static_cast<double>(static_cast<const typename arrow::TypeTraits<Type>::ScalarType&>(scalar).value);
  };
  (take(static_cast<const Types*>(nullptr)), ...);
  return number;
}

std::optional<double> number_of_any(const arrow::Scalar& scalar) {
  return number_of<arrow::BooleanType, arrow::Int8Type, arrow::Int16Type, arrow::Int32Type, arrow::Int64Type,
                   arrow::UInt8Type, arrow::UInt16Type, arrow::UInt32Type, arrow::UInt64Type,
                   arrow::FloatType, arrow::DoubleType, arrow::Date32Type, arrow::Date64Type,
                   arrow::Time32Type, arrow::Time64Type, arrow::TimestampType>(scalar);
}

}  // namespace

std::optional<ParquetRange> column_range(const parquet::ColumnChunkMetaData& column) {
  const std::shared_ptr<parquet::Statistics> statistics = column.statistics();
  if (!statistics || !statistics->HasMinMax()) return std::nullopt;
  std::shared_ptr<arrow::Scalar> least, most;
  if (!parquet::arrow::StatisticsAsScalars(*statistics, &least, &most).ok()) return std::nullopt;
  const auto low = number_of_any(*least);
  const auto high = number_of_any(*most);
  // Some writers have noted NaN, which says nothing.
  if (!low || !high || std::isnan(*low) || std::isnan(*high)) return std::nullopt;
  // A double may lie beside an integer of more than 53 bits.
  constexpr double kExact = 0x1p53;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto widened = [&](double value, double to) {
    return std::abs(value) < kExact ? value : std::nextafter(value, to);
  };
  return ParquetRange{.least = widened(*low, -kInfinity), .most = widened(*high, kInfinity)};
}

}  // namespace lockstep
