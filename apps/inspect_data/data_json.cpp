#include <nlohmann/json.hpp>

#include "lockstep/apps/inspect_data/data_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {
namespace {

using Json = nlohmann::ordered_json;

Json histogram_json(const NumberBins& bins) {
  if (bins.is_empty()) return nullptr;
  return {{"low", bins.low()}, {"width", bins.width()}, {"counts", bins.counts()}};
}

Json numbers_json(const NumberSummary& numbers) {
  if (numbers.count + numbers.num_nan + numbers.num_infinite == 0) return nullptr;
  Json json{{"count", numbers.count}, {"nan", numbers.num_nan}, {"infinite", numbers.num_infinite}};
  const bool has_any = numbers.count > 0;
  json["least"] = has_any ? Json(numbers.least) : Json();
  json["mean"] = has_any ? Json(numbers.mean()) : Json();
  json["most"] = has_any ? Json(numbers.most) : Json();
  json["histogram"] = histogram_json(numbers.bins);
  return json;
}

Json texts_json(const ValueCounts& counts) {
  if (!counts.is_exact()) return nullptr;
  Json json = Json::object();
  const std::map<std::string, int64_t> sorted(counts.of_texts().begin(), counts.of_texts().end());
  for (const auto& [text, count] : sorted) json[text] = count;
  return json;
}

Json column_json(const ColumnSummary& column) {
  const bool is_read = column.kind != ColumnKind::kOther;
  Json json{{"name", printable(column.name)}, {"type", printable(column.type)}};
  json["unit"] = column.unit.empty() ? Json() : Json(column.unit);
  json["compression"] = column.compression.empty() ? Json() : Json(column.compression);
  json["stored_bytes"] = column.stored_bytes;
  json["uncompressed_bytes"] = column.uncompressed_bytes;
  json["decoded_bytes"] = column.decoded_bytes;
  json["rows"] = column.num_rows;
  json["nulls"] = is_read ? Json(column.num_nulls) : Json();
  json["null_elements"] = column.has_lists ? Json(column.num_null_elements) : Json();
  json["distinct"] = is_read ? Json(column.values.num_distinct()) : Json();
  json["distinct_is_exact"] = is_read ? Json(column.values.is_exact()) : Json();
  json["numbers"] = numbers_json(column.numbers);
  if (column.kind == ColumnKind::kIntegers && column.numbers.count > 0) {
    json["numbers"]["least"] = column.least_integer;
    json["numbers"]["most"] = column.most_integer;
  }
  json["lengths"] = numbers_json(column.lengths);
  const bool has_values = is_read && column.values.is_exact() && column.kind != ColumnKind::kImages &&
                          column.kind != ColumnKind::kBinaries;
  json["values"] = has_values ? Json::array() : Json();
  if (has_values)
    for (const auto& [value, count] : counted_values(column))
      json["values"].push_back({{"value", value}, {"count", count}});
  json["images"] = nullptr;
  if (column.kind == ColumnKind::kImages)
    json["images"] = {{"formats", texts_json(column.images.formats)},
                      {"sizes", texts_json(column.images.sizes)},
                      {"widths", numbers_json(column.images.widths)},
                      {"heights", numbers_json(column.images.heights)}};
  return json;
}

}  // namespace

std::string data_json(const DataSummary& summary) {
  Json json{{"format_version", 1}, {"place", printable(summary.place)}, {"kind", summary.kind}};
  json["writer"] = summary.writer.empty() ? Json() : Json(printable(summary.writer));
  json["files"] = Json::array();
  for (const std::string& file : summary.files) json["files"].push_back(printable(file));
  json["stored_bytes"] = summary.stored_bytes;
  json["rows"] = summary.num_rows ? Json(*summary.num_rows) : Json();
  json["rows_read"] = summary.rows_read;
  json["sampling"] = summary.is_sample() ? Json(summary.sampling) : Json();
  json["row_groups"] = nullptr;
  if (summary.kind == "Parquet")
    json["row_groups"] = {{"count", summary.num_row_groups},
                          {"least_rows", summary.least_group_rows},
                          {"most_rows", summary.most_group_rows}};
  json["malformed_rows"] = summary.num_malformed;
  json["problems"] = Json::array();
  for (const std::string& problem : summary.problems) json["problems"].push_back(printable(problem));
  json["columns"] = Json::array();
  for (const ColumnSummary& column : summary.columns) json["columns"].push_back(column_json(column));
  return json.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
}

}  // namespace lockstep::apps
