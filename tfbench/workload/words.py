"""The 1024 words prompts are made of: short, common, neutral English.

Each is one token after a space in SmolLM2's vocabulary (checked against its GGUF), and common enough to be one in
other byte-pair vocabularies of this size; that is what makes "one word, about one token" hold without a tokenizer.
Order and content are part of every prompt's identity: a change here changes every prompt.
"""

WORDS: tuple[str, ...] = tuple(
    """
able about above access action active actual adjust adopt advice after again agent ahead album alert alive allow
almost along also alter amount angle animal answer apart appeal apple apply area around array arrive artist aside
aspect asset assign assist attach attend author avoid aware away back ball band bare bark barn basic basis basket bath
beam bean bear become before begin belief bell belong belt bench bend beside best better bill bind bird blank blend
block blue board boat bold bolt bond book boost boot born borrow both bottom bound bowl branch brand brass bread break
breath brick bridge brief bring broad broken brush budget build bulk bundle bush busy button buyer cabin cake call
calm camp canal candle carbon card care carpet carrot carry case cash cast catch cause cave cent center cereal chair
chalk chance charge charm chart check cheese chef child choice choose city claim class clean clear clerk click client
cliff clock close cloth club clue coach coal coat code coffee cold color column comic common cook copper copy coral
corn corner cost couch count couple cousin cover craft create creek crew crop cross crowd cube curve custom daily
dairy dance data date dawn dear decade decide deep deer define delay delta demand depend depth derive design desire
desk detect device dial diary dinner direct disc divide dock doctor dollar dome door doubt dough down draft dragon
drama dream dress drift drink drive drop duck during dust each eager eagle earn earth ease easy echo edge effect
effort eight elbow elder eleven email emerge employ enable energy engage enjoy enough ensure entire entry equal error
escape essay estate event ever every exam excel except exist exit expand expert export extend extra fabric face factor
fade fair family famous farm fast father favor feel fellow fence field fifth fifty file fill film final find fine
finish firm first five flag flame flat flavor fleet float floor flour flower fluid foam focus folk follow food force
forest form format former forth four frame free fresh friend front fruit fuel full future gain galaxy garage garden
garlic gather gear gene giant gift ginger glad glass globe glove glow glue goat gold golden goose grace grade grand
grant grape grass gray great grid grip ground grow growth guess guest guitar gulf habit half hall hammer handle hang
happen harbor hard hardly health hear heart heavy height hello here hero hidden hill hint hobby hole home honest hook
hope horn host hotel hour huge human humble hungry hurry icon ideal image impact inch income indeed indoor inform
inner insect inside intend invent invest invite iron issue item ivory jazz jewel join joke juice jump junior just keen
kettle kind kite know label lace lake lamp land large last late laugh launch lawn lead leader leaf learn least leave
legend lemon lend lens less lesson level lever life light like likely limit line link liquid list listen little lively
load loan local lock logic look loop loose love loyal luck luxury magic magnet main major make manage manner many
marble margin marine market mask master math matter mayor meal mean meat media medium meet member memory menu merit
metal meter middle mild mile mill mind mine mint minute mirror mixed mobile mode model modest moment money mood moon
more mother motion motor mouth move movie museum music mutual narrow nature near neat need needle never news next
night nine noble none noon normal nose note notice number oasis object ocean offer office okay olive once online only
onto opera option orange order organ origin other output oval oven owner oxygen oyster pack page paint palace palm
panel parade parent park part party pass paste patch path peace peach peak pearl pencil penny pepper period permit
phase phone photo piano pick picnic pilot pine pink pitch pizza place plan plane planet plate play player plenty plot
plug pocket poem poet point pole polish polite pool porch port potato pound powder prefer press pretty pride print
prior profit proof proper prove public pull pump pure purple puzzle quick quiet quite quote rabbit radar radio raft
rain raise ranch range rapid rare rather ratio reach read ready real recall recent recipe reduce refer region relax
relay relief rely remind remote remove repair repeat reply rescue resort rest retail return reveal reward rhythm
ribbon rich ride ridge ring ripe rise road roast robot rocket role roll room root rope rough round route rule rural
rush safe sail salad salt same sample sauce save scale scene scenic scheme scope score scout screen seal search season
second secret sector seed seek seem self sell send sense series serve seven shade shadow shape share sharp sheet shelf
shell shine ship shirt shop shore short shower shut side sign signal silent silver simple since single sister site
skate sketch skill sleep slice slide slope slow slowly smart smile smooth snack soap social sock soil solar solid some
song soon sound soup source space spare spark speech speed spell spice spider spin split spoon sport spray spread
spring stable stack staff stair stamp stand start state statue steady steam steel stem step stick stock stone stool
store story stream strict string strong study stuff style submit such sudden sugar summer sunny sunset supply sure
survey swift swim swing symbol system table tail take tale talk tall tank target task taste team tell tenant tennis
tent term text thank theme theory there thick thing think third three thrive throw ticket tide tidy tight tile timber
tiny tire title toast tomato tone tool topic torch total tour toward towel town trace track trail train travel treat
tree trend trip trophy truck trunk trust truth tuna tunnel turkey turtle twelve twenty twin type uncle unfold union
unique until update upon urban useful user vacant valley value vast vault vector vendor venue verb vessel video view
vine violin vision visit vital vivid vocal volume voyage wagon walk wall walnut want warm wash water wave wealth weave
week weigh well west whale wheel while white wide width wild window wing winner wire wise wish wonder wood wooden word
work worker worth write writer year yellow yield youth zebra zero
""".split()
)
