#include "lockstep/apps/plan/plan_json.h"

#include <nlohmann/json.hpp>

#include "lockstep/apps/plan/plan_report.h"
#include "lockstep/apps/plan/training_command.h"
#include "lockstep/apps/shared/planning/layout_flags.h"

namespace lockstep::apps {
namespace {

using Json = nlohmann::ordered_json;

std::string key_of(std::string name) {
  for (char& letter : name)
    if (letter == ' ' || letter == '-') letter = '_';
  return name;
}

Json parts_json(const std::vector<std::pair<std::string, double>>& parts) {
  Json json = Json::object();
  for (const auto& [name, value] : parts) json[key_of(name)] = value;
  return json;
}

Json layout_json(const PlanOptions& options, const PlannedLayout& layout) {
  return {{"mesh", layout.mesh()},
          {"sharding", layout.stage},
          {"micro_batches", layout.micro_batches},
          {"micro_batch_size", micro_batch_size(options.training.global_batch, layout)},
          {"recompute", layout.recomputes},
          {"schedule", layout.pipeline > 1 ? Json(layout.schedule) : Json()},
          {"stages_per_rank", layout.stages_per_rank},
          {"sequence_parallel", layout.has_sequence_shards},
          {"servers", layout.servers},
          {"flags", training_flags(options, layout)}};
}

Json model_json(const PlanOptions& options, const PlannedModel& model) {
  Json json{{"name", options.model_name}, {"parameters", model.elements()}, {"precision", options.precision}};
  switch (options.program) {
    case PlannedProgram::kTrainGpt:
      json["layers"] = options.model.num_layers;
      json["width"] = options.model.width;
      json["heads"] = options.model.num_heads;
      json["vocabulary"] = options.model.vocabulary_size;
      json["sequence_length"] = options.sequence_length;
      break;
    case PlannedProgram::kTrainImages:
      json["image_size"] = options.images.image_size;
      json["classes"] = options.classes;
      break;
    case PlannedProgram::kTrainCtr:
      json["table_rows"] = options.clicks.table_rows;
      json["embedding_dim"] = options.clicks.embedding_dim;
      break;
  }
  return json;
}

Json memory_json(const LayoutMemory& memory) {
  Json json = parts_json(memory_parts(memory));
  json["peak"] = memory.peak();
  return json;
}

Json choice_json(const PlanOptions& options, const LayoutPlanner& planner, const PlannedChoice& choice) {
  Json json = layout_json(options, choice.layout);
  json["memory"] = memory_json(choice.memory);
  for (const auto& rank : planner.memory_of_ranks(choice.layout))
    json["memory_of_stages"].push_back(memory_json(rank));
  json["seconds"] = choice.time.seconds();
  json["time"] = parts_json(time_parts(choice.time));
  return json;
}

Json unfit_json(const PlanOptions& options, const UnfitLayout& unfit) {
  Json json = layout_json(options, unfit.layout);
  json["memory"] = memory_json(unfit.memory);
  json["least_seconds"] = unfit.least_seconds;
  json["change"] =
      unfit.change
          ? Json(changed_flags(options.program, options.training.global_batch, unfit.layout, *unfit.change))
          : Json();
  return json;
}

}  // namespace

std::string plan_json(const PlanOptions& options, const LayoutPlanner& planner, const LayoutSearch& search) {
  const auto& cluster = planner.cluster();
  Json json{{"version", 1},
            {"is_arithmetic", !options.is_here},
            {"program", program_name(options.program)},
            {"model", model_json(options, planner.model())},
            {"global_batch_size", options.training.global_batch},
            {"machines",
             {{"devices", cluster.devices},
              {"devices_per_machine", cluster.devices_per_machine},
              {"memory", cluster.memory_bytes},
              {"flops_per_second", cluster.flops_per_second},
              {"bytes_per_second", cluster.bytes_per_second},
              {"operator_seconds", cluster.operator_seconds},
              {"link_within", cluster.within.bytes_per_second},
              {"link_between", cluster.between.bytes_per_second},
              {"server_memory", cluster.server_memory_bytes}}},
            {"tried", search.num_candidates},
            {"fit", search.num_fit},
            {"ranked", Json::array()},
            {"unfit", Json::array()}};
  for (const auto& choice : search.ranked) json["ranked"].push_back(choice_json(options, planner, choice));
  for (const auto& unfit : search.unfit) json["unfit"].push_back(unfit_json(options, unfit));
  return json.dump(2) + "\n";
}

}  // namespace lockstep::apps
