// Checkpoints and weights of models that are cut along an axis. Oracle: the whole model on one device.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/tests/models/gpt/cut_gpts.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/state/saved_tensors.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

constexpr double kCloseStates = 1e-12;

/// A mesh and the stage of sharding on it.
struct GptLayout {
  std::string mesh;
  int stage = 0;

  std::string str() const { return mesh + " at stage " + std::to_string(stage); }
};

const std::vector<GptLayout> kLayouts = {{"data=1"},
                                         {"data=4"},
                                         {"tensor=2"},
                                         {"tensor=4"},
                                         {"data=2,tensor=2"},
                                         {"data=2,tensor=2", 3},
                                         {"shard=2,tensor=2", 1},
                                         {"shard=2,tensor=2", 2},
                                         {"tensor=2,shard=2", 3}};

/// A training on a mesh with its state.
struct SavedGptTraining {
  SavedGptTraining(const GptLayout& layout, const GptOptions& options)
      : strategy(cpu_devices(parse_mesh(layout.mesh).size()),
                 cut_gpt_strategy(parse_mesh(layout.mesh), layout.stage)),
        training(strategy, options),
        state(strategy) {
    state.add_model(training.model);
    state.add_optimizer("adam", training.adam);
  }
  void train(int from, int to) {
    for (int step = from; step < to; ++step) training.step(step);
  }

  MirroredStrategy strategy;
  CutGptTraining training;
  TrainingState state;
};

/// Saves a training on each layout, and loads each file on each layout.
void expect_files_are_read_by_each_layout(const std::vector<GptLayout>& layouts, const GptOptions& options) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const auto& layout : layouts) {
    SavedGptTraining saved(layout, options);
    saved.train(0, 2);
    files.push_back(folder.path() + "/" + std::to_string(files.size()) + ".pt");
    saved.state.save(files.back(), {});
    if (files.size() > 1) expect_saved_tensors(files.back(), files.front(), kCloseStates);
  }
  for (size_t on = 0; on < files.size(); ++on) {
    SavedGptTraining other(layouts[on], options);
    for (size_t from = 0; from < files.size(); ++from) {
      if (!takes_pair(on, from, files.size())) continue;
      SCOPED_TRACE(::testing::Message() << files[from] << " on " << layouts[on].str());
      other.state.load(files[from]);
      other.state.save(folder.path() + "/again.pt", {});
      expect_saved_tensors(folder.path() + "/again.pt", files[from]);
    }
  }
}

class CutGptStatesTest : public ::testing::TestWithParam<NamedGpt> {};

TEST_P(CutGptStatesTest, CheckpointsOfEachMeshAreReadByEachOther) {
  expect_files_are_read_by_each_layout(kLayouts, GetParam().options);
}

TEST_P(CutGptStatesTest, CheckpointsOfStagesAreReadByEachOther) {
  expect_files_are_read_by_each_layout({{"data=1"},
                                        {"pipeline=2"},
                                        {"pipeline=2,tensor=2"},
                                        {"data=2,pipeline=2", 1},
                                        {"pipeline=2,data=2", 2},
                                        {"data=2,pipeline=2", 3},
                                        {"data=2,pipeline=2,tensor=2", 3}},
                                       GetParam().options);
}

TEST_P(CutGptStatesTest, CheckpointsOfStagesOfPartsOfSequencesAreReadByEachOther) {
  expect_files_are_read_by_each_layout({{"data=1"},
                                        {"pipeline=2,context=2"},
                                        {"context=2"},
                                        {"pipeline=2"},
                                        {"data=2,context=2,pipeline=2", 3},
                                        {"pipeline=2,context=2,tensor=2", 1}},
                                       GetParam().options);
}

TEST_P(CutGptStatesTest, CheckpointsOfExpertsAreReadByEachOther) {
  GptOptions options = GetParam().options;
  options.num_experts = 4;
  expect_files_are_read_by_each_layout({{"data=1"},
                                        {"data=4"},
                                        {"tensor=4"},
                                        {"data=2,tensor=2", 3},
                                        {"expert=2,data=2"},
                                        {"data=2,expert=2", 1},
                                        {"expert=2,context=2", 2},
                                        {"expert=2,context=2", 3},
                                        {"data=2,expert=2,tensor=2", 2}},
                                       options);
}

TEST_P(CutGptStatesTest, CheckpointsOfStagesWithExpertsAreReadByEachOther) {
  GptOptions options = GetParam().options;
  options.num_experts = 4;
  expect_files_are_read_by_each_layout({{"data=1"},
                                        {"expert=2,pipeline=2"},
                                        {"pipeline=2"},
                                        {"expert=2"},
                                        {"pipeline=2,expert=2", 3},
                                        {"data=2,pipeline=2", 2},
                                        {"expert=2,pipeline=2,tensor=2"}},
                                       options);
}

TEST_P(CutGptStatesTest, TrainingsResumeOnOtherMeshes) {
  const TemporaryFolder folder;
  const auto& options = GetParam().options;
  SavedGptTraining whole({"data=1"}, options);
  whole.train(0, 6);
  for (const auto& [begin, end] :
       std::vector<std::pair<GptLayout, GptLayout>>{{{"tensor=2"}, {"data=1"}},
                                                    {{"data=1"}, {"tensor=2"}},
                                                    {{"data=2,tensor=2"}, {"tensor=4"}},
                                                    {{"tensor=2"}, {"shard=2,tensor=2", 3}},
                                                    {{"shard=2,tensor=2", 3}, {"data=2,tensor=2", 1}},
                                                    {{"pipeline=2"}, {"data=1"}},
                                                    {{"data=1"}, {"pipeline=4"}},
                                                    {{"pipeline=2,tensor=2"}, {"data=2,pipeline=2", 3}},
                                                    {{"data=2,pipeline=2", 3}, {"tensor=2,pipeline=2"}},
                                                    {{"data=2,pipeline=2", 2}, {"pipeline=2"}},
                                                    {{"pipeline=4"}, {"data=2,pipeline=2", 1}},
                                                    {{"pipeline=2,context=2"}, {"data=1"}},
                                                    {{"context=2"}, {"context=2,pipeline=2", 3}}}) {
    SCOPED_TRACE(::testing::Message() << begin.str() << " to " << end.str());
    const std::string file = folder.path() + "/state.pt";
    SavedGptTraining first(begin, options);
    first.train(0, 3);
    first.state.save(file, {});
    SavedGptTraining second(end, options);
    second.state.load(file);
    second.train(3, 6);
    for (const auto& own : second.training.model.local_values())
      EXPECT_LE(difference_from_whole(own, whole.training.model.primary()), kCloseStates);
  }
}

TEST_P(CutGptStatesTest, SavedWeightsAreThoseOfOneDevice) {
  const TemporaryFolder folder;
  const auto weights_on = [&](const GptLayout& layout) {
    SavedGptTraining saved(layout, GetParam().options);
    saved.train(0, 3);
    const std::string file = folder.path() + "/weights.safetensors";
    save_weights(file, saved.strategy, saved.training.model);
    return load_weights(file);
  };
  const auto whole = weights_on({"data=1"});
  for (const GptLayout& layout : {GptLayout{"tensor=2"},
                                  {"data=2,tensor=2"},
                                  {"shard=2,tensor=2", 3},
                                  {"pipeline=2,tensor=2"},
                                  {"data=2,pipeline=2", 3}})
    expect_tensors(weights_on(layout), whole, kCloseStates);
}

INSTANTIATE_TEST_SUITE_P(Families, CutGptStatesTest, ::testing::ValuesIn(few_if_sanitized(cut_gpts(), 2)),
                         name_of);

}  // namespace
}  // namespace lockstep
