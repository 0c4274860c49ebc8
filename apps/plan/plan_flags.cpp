#include "lockstep/apps/plan/plan_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "lockstep/apps/plan/model_to_plan.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/apps/train_ctr/ctr_flags.h"
#include "lockstep/apps/train_gpt/options/gpt_flags.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/apps/train_images/options/flags.h"
#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep::apps {
namespace {

constexpr const char* kExamples =
    "\nExamples:\n"
    "  plan                                             # train_gpt's small model on this machine\n"
    "  plan --model mobilenet_v2 --global-batch-size 256 --devices 2\n"
    "  plan --model llama-2-7b --global-batch-size 512 --precision bfloat16 --devices 64 \\\n"
    "    --memory 80GiB --gpu H100 --link 400Gbit/s     # 8 machines with 8 GPUs each\n"
    "  plan --model gpt --layers 96 --hidden 12288 --heads 96 --vocabulary-size 50304 \\\n"
    "    --sequence-length 2048 --global-batch-size 1536 --precision bfloat16 --devices 1024 \\\n"
    "    --memory 80GiB --gpu A100 --link 200Gbit/s --svg memory.svg --json plan.json\n"
    "  plan --model dlrm --table-rows 1000000000 --devices 16 --memory 80GiB --gpu A100 \\\n"
    "    --server-memory 500GiB                         # a table that no GPU holds\n"
    "\nPlans of machines that are not here are arithmetic: nothing of them has been measured.\n"
    "\nExit codes: 0 done, 1 any other error, 2 usage, 7 no layout fits into the memory.\n";

/// Returns those of a program's flags with these names, under a heading of this program.
std::vector<Flag> flags_of_program(const std::string& group, const std::vector<Flag>& flags,
                                   const std::vector<std::string>& names) {
  std::vector<Flag> chosen;
  for (const auto& name : names) {
    for (auto flag : flags) {
      if (flag.name != name) continue;
      flag.group = group;
      chosen.push_back(std::move(flag));
    }
  }
  return chosen;
}

std::vector<Flag> model_flag() {
  return {
      {"Model", "model", "NAME",
       fmt::format("A language model of train_gpt: {}, or gpt for the sizes that the flags below give, in "
                   "the family of Llama unless --family says otherwise. An image model of train_images: {}. "
                   "A click model of train_ctr: {}",
                   fmt::join(gpt_preset_names(), ", "),
                   fmt::join(planned_model_names(PlannedProgram::kTrainImages), " or "),
                   fmt::join(planned_model_names(PlannedProgram::kTrainCtr), " or ")),
       kSmallModel}};
}

std::vector<Flag> language_model_flags() {
  const std::string group = "Language model";
  auto flags = flags_of_program(group, gpt_model_flags(),
                                {"family", "layers", "hidden", "heads", "kv-heads", "mlp-hidden", "experts",
                                 "experts-per-token", "shared-experts", "expert-capacity", "dropout"});
  flags.push_back({group, "vocabulary-size", "N",
                   "Tokens of the vocabulary (default: those of the model, or 32000 for gpt)"});
  flags.push_back({group, "sequence-length", "N",
                   "Tokens in a sequence (default: the model's longest, up to 1024, or 1024 for gpt)"});
  return flags;
}

std::vector<Flag> image_model_flags() {
  const std::string group = "Image model";
  auto flags = flags_of_program(group, model_flags(), {"image-size", "head"});
  flags.push_back({group, "classes", "N", "Classes, which train_images finds in its data",
                   fmt::format("{}", PlanOptions().classes)});
  return flags;
}

std::vector<Flag> click_model_flags() {
  return flags_of_program("Click model", ctr_model_flags(), {"table-rows", "embedding-dim"});
}

std::vector<Flag> planned_training_flags() {
  return {
      {"Training", "global-batch-size", "N",
       fmt::format("Sequences, images or rows in a step, over all replicas (default: {}, {} or {})",
                   GptTrainOptions().global_batch_size, TrainOptions().global_batch_size,
                   CtrWork().global_batch_size)},
      {"Training", "tokens-per-step", "N",
       "Tokens in a step instead of --global-batch-size: a multiple of the sequence length"},
      {"Training", "optimizer", "NAME",
       "adam, adamw or sgd for image models (default: adam); sgd, adagrad or adam for click models (default: "
       "adagrad). Language models have AdamW"},
      {"Training", "momentum", "X", "Momentum of sgd for image models; 0 needs no memory for it",
       fmt::format("{}", TrainOptions().momentum)},
      precision_flag()};
}

std::vector<Flag> machine_flags() {
  return {
      {"Machine", "devices", "N", "Devices of all machines together (default: the cores of this machine)"},
      {"Machine", "memory", "SIZE",
       "Memory of a device, such as 80GiB (default: that of this machine, divided by --devices)"},
      {"Machine", "reserve", "SIZE",
       "Memory of a device that the plan leaves free, for the driver, NCCL and what an allocator cannot fill "
       "(default: a twentieth of --memory)"},
      {"Machine", "server-memory", "SIZE",
       "For click models: memory of a parameter server, which runs on a machine's CPUs besides its devices "
       "(default: servers are among --devices)"},
      {"Machine", "gpus-per-machine", "N", "Devices of a machine", "8"},
      {"Machine", "gpu", "NAME",
       "Take the speed of matrix products that the maker of this GPU states for --precision, times "
       "--efficiency: H100, A100, B200 and others"},
      {"Machine", "efficiency", "X", "Share of the stated speed that matrix products reach, below 1", "0.5"},
      {"Machine", "flops", "RATE",
       "Operations per second that matrix products of a device reach, such as 400TFLOP/s, instead of --gpu "
       "(default: measured here)"},
      {"Machine", "memory-bandwidth", "RATE",
       "Bytes per second that other operators of a device read and write (default: measured here; of other "
       "machines 2TB/s)"},
      {"Machine", "operator-time", "TIME",
       "Time that each operator takes at least (default: measured here; of other machines 5us)"},
      {"Machine", "link", "RATE", "Rate of a device to other machines, in each direction, such as 400Gbit/s",
       "200Gbit/s"},
      {"Machine", "link-latency", "TIME", "Time of a message between machines, besides its bytes", "10us"},
      {"Machine", "link-within", "RATE",
       "Rate between two devices of a machine (default: measured here; of other machines 200GB/s)"},
      {"Machine", "link-within-latency", "TIME",
       "Time of a message within a machine, besides its bytes (default: measured here; of other machines "
       "5us)"},
  };
}

std::vector<Flag> plan_output_flags() {
  return {{"Plans", "mesh", "AXES", "Plan only this mesh, such as data=8,tensor=8 (default: all meshes)"},
          {"Plans", "top", "N", "Show the N fastest layouts", "10"},
          {"Plans", "json", "FILE", "Write all numbers of the shown layouts as JSON"},
          {"Plans", "svg", "FILE",
           "Draw the memory of each rank in the fastest layout, for light and dark pages"}};
}

}  // namespace

FlagTable plan_flags() {
  FlagTable table{
      .program = "plan",
      .summary =
          "Predicts memory and time of a training in every layout, and names the flags that run the "
          "fastest.",
      .after = kExamples,
      .alternatives = {{"global-batch-size", "tokens-per-step"}, {"gpu", "flops"}},
      .needs = {{"efficiency", {"gpu"}}}};
  for (auto group : {model_flag(), language_model_flags(), image_model_flags(), click_model_flags(),
                     planned_training_flags(), machine_flags(), plan_output_flags()})
    for (auto& flag : group) table.flags.push_back(std::move(flag));
  table.flags.push_back({"Other", "h,help", "", "Print this help, and exit", "", FlagRole::kAction});
  table.flags.push_back(
      {"Other", "version", "", "Print the version of Lockstep, and exit", "", FlagRole::kAction});
  return table;
}

std::string plan_help_text(const std::string& program) {
  return help_text(plan_flags(), program);
}

}  // namespace lockstep::apps
