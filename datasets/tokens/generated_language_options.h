#pragma once

namespace lockstep {

/// The sizes of a GeneratedLanguage. The defaults make a language of 78 words.
struct GeneratedLanguageOptions {
  int num_classes = 6;        ///< classes of subjects, 1 to 6; each has its own verb ending and pronoun
  int nouns_per_class = 4;    ///< 1 to 4
  int num_prepositions = 4;   ///< 1 to 4
  int num_places = 8;         ///< 1 to 8
  int num_verbs = 8;          ///< 1 to 8
  int num_items = 8;          ///< things that are counted, 1 to 8
  int smallest_count = 3;     ///< 1 to 9
  int largest_count = 6;      ///< smallest_count to 9
  int num_brackets = 4;       ///< kinds of brackets, 1 to 4
  int max_depth = 3;          ///< how deep clauses are nested, 0 to 7
  double nesting = 0.5;       ///< probability that brackets hold a clause, at least 0 and below 1
  double end_of_text = 0.15;  ///< probability that a sentence is its document's last one, above 0, at most 1
  /// Given names, as many family names and as many towns, 0 to 128. For each pair of names, there is a person
  /// who lives in one of the towns: num_names^2 facts that a model must learn by heart.
  int num_names = 0;
  /// With names: probability that a sentence states such a fact, above 0, at most 1. With 1, the language has
  /// no words but those of facts.
  double fact_share = 0.5;
};

}  // namespace lockstep
