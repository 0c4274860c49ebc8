#include "lockstep/training/reporting/records/pipeline_record.h"

#include <array>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

constexpr double kMostSeconds = 1e9;

constexpr std::array<std::pair<PipelineOp, const char*>, 8> kOpNames{{
    {PipelineOp::kForward, "forward"},
    {PipelineOp::kBackward, "backward"},
    {PipelineOp::kBackwardInputs, "backward_inputs"},
    {PipelineOp::kBackwardWeights, "backward_weights"},
    {PipelineOp::kSendActivation, "send_activation"},
    {PipelineOp::kReceiveActivation, "receive_activation"},
    {PipelineOp::kSendGradient, "send_gradient"},
    {PipelineOp::kReceiveGradient, "receive_gradient"},
}};

const MetricValue* value_in(const MetricRow& row, const std::string& name) {
  for (const auto& [key, value] : row) {
    if (key == name) return &value;
  }
  return nullptr;
}

/// Returns nothing for values that are no counts.
std::optional<int64_t> count_in(const MetricRow& row, const std::string& name, int64_t most) {
  const auto* value = value_in(row, name);
  const auto* count = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  return count != nullptr && *count >= 0 && *count <= most ? std::optional(*count) : std::nullopt;
}

/// Returns nothing for values that are not between 0 and `most`.
std::optional<double> number_in(const MetricRow& row, const std::string& name, double most) {
  const auto* value = value_in(row, name);
  if (value == nullptr) return std::nullopt;
  const auto* whole = std::get_if<int64_t>(value);
  const auto* number = std::get_if<double>(value);
  if (whole == nullptr && number == nullptr) return std::nullopt;
  const double read = whole != nullptr ? static_cast<double>(*whole) : *number;
  return read >= 0 && read <= most ? std::optional(read) : std::nullopt;
}

std::string text_in(const MetricRow& row, const std::string& name) {
  const auto* value = value_in(row, name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? "" : *text;
}

std::optional<PipelineOp> op_of(const std::string& name) {
  for (const auto& [op, known] : kOpNames) {
    if (name == known) return op;
  }
  return std::nullopt;
}

}  // namespace

std::string pipeline_op_name(PipelineOp op) {
  return kOpNames.at(static_cast<size_t>(op)).second;
}

bool is_pipeline_computation(PipelineOp op) {
  return op <= PipelineOp::kBackwardWeights;
}

MetricRow metric_row(const PipelineRecord& record) {
  return {{"step", record.step},
          {"schedule", record.schedule},
          {"ranks", record.ranks},
          {"stages", record.stages},
          {"micro_batches", record.micro_batches},
          {"actions", record.num_actions},
          {"planned_seconds", record.planned_seconds},
          {"seconds", record.seconds},
          {"planned_bubble", record.planned_bubble},
          {"bubble", record.bubble}};
}

MetricRow metric_row(const PipelineActionRecord& record) {
  return {{"rank", record.rank},
          {"op", pipeline_op_name(record.action.op)},
          {"stage", int64_t{record.action.stage}},
          {"micro_batch", int64_t{record.action.micro_batch}},
          {"planned_begin", record.planned_begin},
          {"planned_end", record.planned_end},
          {"begin", record.begin},
          {"end", record.end}};
}

PipelineRecord pipeline_record_of(const MetricRow& row) {
  constexpr int64_t kMostSteps = int64_t{1} << 60;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return {.step = count_in(row, "step", kMostSteps).value_or(0),
          .schedule = text_in(row, "schedule"),
          .ranks = count_in(row, "ranks", kMost).value_or(0),
          .stages = count_in(row, "stages", kMost).value_or(0),
          .micro_batches = count_in(row, "micro_batches", kMost).value_or(0),
          .num_actions = count_in(row, "actions", kMostSteps).value_or(0),
          .planned_seconds = number_in(row, "planned_seconds", kMostSeconds).value_or(0),
          .seconds = number_in(row, "seconds", kMostSeconds).value_or(0),
          .planned_bubble = number_in(row, "planned_bubble", 1).value_or(0),
          .bubble = number_in(row, "bubble", 1).value_or(0)};
}

std::optional<PipelineActionRecord> pipeline_action_of(const MetricRow& row) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const auto rank = count_in(row, "rank", kMost);
  const auto op = op_of(text_in(row, "op"));
  const auto stage = count_in(row, "stage", kMost), micro_batch = count_in(row, "micro_batch", kMost);
  const auto planned_begin = number_in(row, "planned_begin", kMostSeconds);
  const auto planned_end = number_in(row, "planned_end", kMostSeconds);
  const auto begin = number_in(row, "begin", kMostSeconds), end = number_in(row, "end", kMostSeconds);
  const bool is_whole = rank && op && stage && micro_batch && planned_begin && planned_end && begin && end;
  if (!is_whole || *planned_end < *planned_begin || *end < *begin) return std::nullopt;
  return PipelineActionRecord{
      .rank = *rank,
      .action = {.op = *op, .stage = static_cast<int>(*stage), .micro_batch = static_cast<int>(*micro_batch)},
      .planned_begin = *planned_begin,
      .planned_end = *planned_end,
      .begin = *begin,
      .end = *end};
}

}  // namespace lockstep
